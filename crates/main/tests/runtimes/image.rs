//! The smallest image there is: a static busybox, as a plain tar and in the layout of OCI.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::world::{World, has};

const BUSYBOX: &str = "/bin/busybox";

/// Whether there is a busybox that runs without anything else; says so if not.
pub(crate) fn has_busybox() -> bool {
    if !has(&["busybox", "tar"]) {
        return false;
    }
    let program = std::fs::read(BUSYBOX).unwrap_or_default();
    let loader = b"/lib64/ld-linux";
    let is_static =
        !program.is_empty() && !program.windows(loader.len()).any(|bytes| bytes == loader);
    if !is_static {
        eprintln!("skipped: {BUSYBOX} is not static (package busybox-static)");
    }
    is_static
}

/// The files of the image as `rootfs.tar`; its web server says `hello`.
pub(crate) fn files(world: &World) -> String {
    let folder = world.path("rootfs");
    for name in ["bin", "www", "tmp", "etc"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    std::fs::copy(BUSYBOX, folder.join("bin/busybox")).unwrap();
    std::fs::write(folder.join("www/index.html"), "hello\n").unwrap();
    let tar = world.text("rootfs.tar");
    pack(&folder, &tar);
    tar
}

/// The image in the layout of OCI, under this name.
pub(crate) fn layout(world: &World, name: &str) -> String {
    let layer = std::fs::read(files(world)).unwrap();
    let folder = world.path("oci");
    std::fs::create_dir_all(folder.join("blobs/sha256")).unwrap();
    let blob = |bytes: &[u8], kind: &str| -> Value {
        let digest: String = Sha256::digest(bytes).iter().map(|it| format!("{it:02x}")).collect();
        std::fs::write(folder.join("blobs/sha256").join(&digest), bytes).unwrap();
        let media_type = format!("application/vnd.oci.image.{kind}");
        json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()})
    };
    let layer = blob(&layer, "layer.v1.tar");
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": { "Cmd": ["/bin/busybox", "sleep", "100000"] },
        "rootfs": { "type": "layers", "diff_ids": [layer["digest"]] },
    });
    let config = blob(config.to_string().as_bytes(), "config.v1+json");
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    let mut manifest = blob(manifest.to_string().as_bytes(), "manifest.v1+json");
    manifest["annotations"] = json!({"io.containerd.image.name": name});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    std::fs::write(folder.join("index.json"), index.to_string()).unwrap();
    std::fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let tar = world.text("oci.tar");
    pack(&folder, &tar);
    tar
}

fn pack(folder: &Path, tar: &str) {
    let packed = Command::new("tar").arg("-C").arg(folder).args(["-cf", tar, "."]).status();
    assert!(packed.unwrap().success());
}
