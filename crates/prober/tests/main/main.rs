//! The prober against real servers on the loopback interface.

mod exec;
mod grpc;
mod hooks;
mod hostile;
mod http;
mod queue;
mod redirects;
mod servers;
mod shortage;
mod target;
mod tcp;
mod tls;
