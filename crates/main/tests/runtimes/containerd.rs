//! containerd, asked as kubelet asks it.

use std::collections::HashMap;

use crate::cri::{PodConfig, PodMetadata, PortMapping, Runtime};
use crate::image;
use crate::world::{World, has, until};

const IMAGE: &str = "docker.io/library/box:latest";

/// Everything of it lies in the host of the test. A score below zero against the killer of
/// processes is not for every machine to give.
fn settings(world: &World) -> String {
    let folder = world.text("layers");
    let socket = world.text("containerd.sock");
    format!(
        r#"
version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"#
    )
}

/// Starts containerd and gives it the image.
fn start(world: &World) -> Runtime {
    let file = world.path("containerd.toml");
    std::fs::write(&file, settings(world)).unwrap();
    world.start(&mut world.command(&["containerd", "--config", file.to_str().unwrap()]));
    let socket = world.path("containerd.sock");
    let mut runtime = None;
    until("containerd serves", || {
        runtime = Runtime::connect(&socket);
        runtime.is_some()
    });
    let socket = world.text("containerd.sock");
    let tar = image::layout(world, IMAGE);
    let client = ["ctr", "--address", &socket, "--namespace", "k8s.io", "images", "import"];
    let flags = ["--snapshotter", "native", tar.as_str()];
    world.ok(&client.into_iter().chain(flags).collect::<Vec<_>>());
    runtime.unwrap()
}

fn pod(name: &str) -> PodConfig {
    let metadata =
        PodMetadata { name: name.into(), uid: format!("uid-{name}"), namespace: "shop".into() };
    PodConfig { metadata: Some(metadata), ..PodConfig::default() }
}

#[test]
fn pods_reach_each_other_and_are_published_and_shaped() {
    let installed = has(&["containerd", "runc", "ctr", "iptables", "tc", "setpriv"]);
    if !installed || !has(&["/usr/lib/cni/portmap"]) || !image::has_busybox() {
        return;
    }
    let Some(world) = World::new() else { return };
    world.margay("setup --bin-dir /usr/lib/cni").says(0, &["this host is node h1"]);
    world.start_agent();
    let runtime = start(&world);
    let web = PodConfig {
        port_mappings: vec![PortMapping { container_port: 80, host_port: 8080 }],
        annotations: HashMap::from([("kubernetes.io/ingress-bandwidth".into(), "1M".into())]),
        ..pod("web")
    };
    let (web_id, web_address) = runtime.run_pod(&web);
    let serve = ["/bin/busybox", "httpd", "-f", "-p", "80", "-h", "/www"];
    runtime.run_container(&web_id, &web, IMAGE, &serve);
    let (db_id, _) = runtime.run_pod(&pod("db"));
    let sleep = ["/bin/busybox", "sleep", "100000"];
    let db = runtime.run_container(&db_id, &pod("db"), IMAGE, &sleep);

    runtime.exec(&db, &["/bin/busybox", "ping", "-c1", "-W20", &web_address]);
    let ask =
        format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | /bin/busybox nc -w 20 {web_address} 80");
    let answer = runtime.exec(&db, &["/bin/busybox", "sh", "-c", &ask]);
    assert!(answer.ends_with("hello"), "{answer}");
    assert!(world.fetch(&["ip", "netns", "exec", "out"], "172.30.0.1", 8080).ends_with("hello"));
    let shaped = world.ok(&["tc", "qdisc", "show"]);
    assert!(shaped.contains("tbf") && shaped.contains("rate 1Mbit"), "{shaped}");
    // Pods of Kubernetes have the names that Kubernetes gave them.
    world.margay("sandboxes").says(0, &["shop/web", "shop/db", &web_address]);

    runtime.remove_pod(&web_id);
    runtime.remove_pod(&db_id);
    world.assert_no_container();
}
