//! Places where a test ends the process, as a kill -9 might, or has it come to grief.

/// The variable that names such a place.
const VARIABLE: &str = "MARGAY_FAULT";

/// Ends the process if a test wants that here: before a step, or after it.
pub fn point(when: &str, step: &str) {
    let Ok(wanted) = std::env::var(VARIABLE) else { return };
    if wanted.split_once('-') == Some((when, step)) {
        std::process::abort();
    }
}

/// Comes to grief over an object whose key has the text that a test names (`panic-TEXT`).
///
/// # Panics
///
/// If that is so: what a fault of the program would do.
pub fn grief(key: &str) {
    grief_over("panic", key);
}

/// Comes to grief at a place, over something whose name has the text that a test names
/// (`PLACE-TEXT`).
///
/// # Panics
///
/// If that is so.
pub fn grief_over(place: &str, name: &str) {
    let Ok(wanted) = std::env::var(VARIABLE) else { return };
    if let Some((wanted, text)) = wanted.split_once('-')
        && wanted == place
    {
        assert!(!name.contains(text), "a test wants this object to be one too many");
    }
}
