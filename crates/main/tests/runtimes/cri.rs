//! As much of the interface between kubelet and runtime as a pod takes: messages by hand, with
//! the field numbers of `runtime.v1`. Fields that are not used are left out.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodMetadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PortMapping {
    #[prost(int32, tag = "2")]
    pub(crate) container_port: i32,
    #[prost(int32, tag = "3")]
    pub(crate) host_port: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<PodMetadata>,
    #[prost(string, tag = "3")]
    pub(crate) log_directory: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) port_mappings: Vec<PortMapping>,
    #[prost(map = "string, string", tag = "7")]
    pub(crate) annotations: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct RunPod {
    #[prost(message, optional, tag = "1")]
    config: Option<PodConfig>,
}

/// Every message that is nothing but one id.
#[derive(Clone, PartialEq, Message)]
struct Id {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Message)]
struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(message, optional, tag = "5")]
    network: Option<Network>,
}

#[derive(Clone, PartialEq, Message)]
struct Network {
    #[prost(string, tag = "1")]
    ip: String,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerConfig {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    metadata: Option<Id>,
    /// Its image.
    #[prost(message, optional, tag = "2")]
    image: Option<Id>,
    #[prost(string, repeated, tag = "3")]
    command: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct CreateContainer {
    #[prost(string, tag = "1")]
    pod: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pod_config: Option<PodConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct Exec {
    #[prost(string, tag = "1")]
    container: String,
    #[prost(string, repeated, tag = "2")]
    command: Vec<String>,
    #[prost(int64, tag = "3")]
    timeout_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Executed {
    #[prost(bytes = "vec", tag = "1")]
    out: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    err: Vec<u8>,
    #[prost(int32, tag = "3")]
    code: i32,
}

/// The runtime, asked as kubelet asks it.
pub(crate) struct Runtime {
    threads: tokio::runtime::Runtime,
    channel: Channel,
}

impl Runtime {
    /// The one that listens at a socket, once it does.
    pub(crate) fn connect(socket: &Path) -> Option<Runtime> {
        let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
        let endpoint = endpoint.timeout(Duration::from_secs(120));
        let channel = threads.block_on(endpoint.connect()).ok()?;
        let runtime = Runtime { threads, channel };
        runtime.ask::<_, Nothing>("Version", Nothing {}).ok().map(|_| runtime)
    }

    fn ask<Q, A>(&self, verb: &str, message: Q) -> Result<A, tonic::Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = format!("/runtime.v1.RuntimeService/{verb}");
        let path = PathAndQuery::try_from(path).unwrap();
        let mut grpc = Grpc::new(self.channel.clone());
        self.threads.block_on(async {
            grpc.ready().await.map_err(|error| tonic::Status::unknown(error.to_string()))?;
            let codec = ProstCodec::<Q, A>::default();
            Ok(grpc.unary(tonic::Request::new(message), path, codec).await?.into_inner())
        })
    }

    #[track_caller]
    fn must<Q, A>(&self, verb: &str, message: Q) -> A
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.ask(verb, message).unwrap_or_else(|status| panic!("{verb}: {status:?}"))
    }

    /// Makes a pod; its id and its address.
    pub(crate) fn run_pod(&self, config: &PodConfig) -> (String, String) {
        let Id { id } = self.must("RunPodSandbox", RunPod { config: Some(config.clone()) });
        let answer: StatusAnswer = self.must("PodSandboxStatus", Id { id: id.clone() });
        (id, answer.status.unwrap().network.unwrap().ip)
    }

    /// Starts a container in a pod; its id.
    pub(crate) fn run_container(
        &self,
        pod: &str,
        pod_config: &PodConfig,
        image: &str,
        command: &[&str],
    ) -> String {
        let config = ContainerConfig {
            metadata: Some(Id { id: "main".into() }),
            image: Some(Id { id: image.into() }),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
        };
        let pod_config = Some(pod_config.clone());
        let wanted = CreateContainer { pod: pod.to_owned(), config: Some(config), pod_config };
        let Id { id } = self.must("CreateContainer", wanted);
        let Nothing {} = self.must("StartContainer", Id { id: id.clone() });
        id
    }

    /// Runs a command in a container; what it printed.
    #[track_caller]
    pub(crate) fn exec(&self, container: &str, command: &[&str]) -> String {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let wanted = Exec { container: container.to_owned(), command, timeout_seconds: 60 };
        let done: Executed = self.must("ExecSync", wanted);
        assert_eq!(done.code, 0, "{}", String::from_utf8_lossy(&done.err));
        String::from_utf8_lossy(&done.out).trim_end().to_owned()
    }

    /// Ends and removes a pod with what is in it.
    pub(crate) fn remove_pod(&self, id: &str) {
        let Nothing {} = self.must("StopPodSandbox", Id { id: id.to_owned() });
        let Nothing {} = self.must("RemovePodSandbox", Id { id: id.to_owned() });
    }
}
