//! Reads files to their end, but never more than somebody can have meant: a device or a pipe
//! without an end would fill the memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The most that a file of connection settings, or a template, may have.
pub const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// The bytes of a file, unless it has more than this many.
pub fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read(File::open(path)?, bytes_max)
}

/// The bytes of a source, unless it has more than this many.
pub fn read(source: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let n_read = source.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match n_read as u64 > bytes_max {
        true => Err(io::Error::other(format!("larger than {}", spoken(bytes_max)))),
        false => Ok(bytes),
    }
}

fn spoken(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{} MiB", bytes >> 20),
        gigabytes => format!("{gigabytes} GiB"),
    }
}
