//! A wrong command line, in the shape of all errors: `error:`, and `help:` with what would be
//! right.

/// What stands at the end of a complaint of the argument parser.
const POINTER: &str = "For more information, try '--help'.";

/// The complaint of the argument parser in our shape. Its own hint becomes the help; where it has
/// none, and none is given, the help says how to find out.
pub fn plain(complaint: &str, help: Option<&str>) -> String {
    let text = complaint.replace("  tip: ", "help: ").replace("\n\n", "\n");
    // That a word with a dash in front may be a value is true, and never what was meant.
    let lines = text.lines().filter(|line| !line.starts_with("help: to pass '"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let general = match (help, text.contains("\nhelp: ")) {
        (Some(help), _) => help,
        (None, true) => "",
        (None, false) => "help: add --help to see what there is",
    };
    text.replace(POINTER, general).trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn a_complaint_ends_in_help() {
        let bare = "error: a value is required\n\nFor more information, try '--help'.\n";
        let asked = "error: a value is required\nhelp: add --help to see what there is\n";
        assert_eq!(plain(bare, None), asked);
        assert_eq!(plain(bare, Some("help: --x 3")), "error: a value is required\nhelp: --x 3\n");
        let hinted = "error: no upp\n\n  tip: there is up\n\nFor more information, try '--help'.\n";
        assert_eq!(plain(hinted, None), "error: no upp\nhelp: there is up\n");
    }
}
