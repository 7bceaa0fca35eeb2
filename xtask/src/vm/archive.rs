//! An archive that the kernel unpacks as its first file system: cpio, "newc".

use std::collections::BTreeSet;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;

/// An archive in the making.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    n_entries: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    pub(super) fn folder(&mut self, name: &str) {
        if self.folders.insert(name.to_owned()) {
            self.entry(name, FOLDER, &[]);
        }
    }

    /// All folders from one that is there to a file below it.
    pub(super) fn folders_to(&mut self, own: &str, path: &str) {
        for (at, _) in path.match_indices('/') {
            let (folder, _) = path.split_at(at);
            self.folder(&format!("{own}/{folder}"));
        }
    }

    pub(super) fn file(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        self.entry(name, FILE | mode, bytes);
    }

    pub(super) fn link(&mut self, name: &str, target: &str) {
        self.entry(name, LINK, target.as_bytes());
    }

    /// The whole of it.
    pub(super) fn finished(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        self.n_entries += 1;
        let len = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (size, name_size) = (len(bytes.len()), len(name.len() + 1));
        // Number, mode, owner, group, links, time, size, devices, name, check.
        let fields = [self.n_entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_as_the_kernel_expects_them() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.folder("bin");
        archive.file("bin/it", 0o755, b"12345");
        let bytes = archive.finished();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.matches("070701").count(), 3, "a folder, a file and the end");
        let file = text.find("bin/it\0").unwrap();
        let header = &text[file - 110..file];
        assert_eq!(&header[..22], "0707010000000200008".to_owned() + "1ed");
        assert_eq!(&header[54..62], "00000005");
        assert_eq!((file - 110) % 4, 0, "entries begin at multiples of four");
        assert!(text[file..].contains("12345\0\0\0"), "and so does what follows their content");
    }
}
