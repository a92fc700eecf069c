//! `hollow`: hollow nodes from the command line. `tests/bed hollow` builds it and runs it inside.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod gates;

use std::{process::ExitCode, sync::atomic::Ordering, time::Duration};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use k8s_openapi::api::core::v1::Taint;
use keelet_hollow::{
    Pace, Shape, fleet,
    flip::{self, FlipSettings, Rate, Remover},
    parse_taint,
};
use kube::{Client, Config};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::interval,
};

/// How often progress is printed.
const PROGRESS: Duration = Duration::from_secs(10);

/// Node objects with renewed leases, heartbeating statuses, and no agent. Without a verb: creates them and keeps them alive until it is
/// interrupted; the nodes stay.
#[derive(Parser)]
#[command(name = "hollow", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    keep: Keep,
}

#[derive(Subcommand)]
enum Verb {
    /// Sets a condition of nodes to True, and measures how long their taint stays
    Flip(Flip),
    Gates(gates::Gates),
    /// Deletes the nodes of a fleet and their leases
    Delete(Fleet),
}

#[derive(Args)]
struct Fleet {
    /// The first part of the nodes' names; fleets with different ones are independent
    #[arg(long, default_value = "hollow")]
    prefix: String,
}

#[derive(Args)]
struct Keep {
    #[command(flatten)]
    fleet: Fleet,
    /// How many nodes there are
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// A taint of new nodes; again for more
    #[arg(long = "taint", value_name = "KEY[=VALUE]:EFFECT", value_parser = parse_taint)]
    taints: Vec<Taint>,
    /// A label; again for more
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// A condition beside those of a kubelet; again for more
    #[arg(long = "condition", value_name = "TYPE=STATUS", value_parser = pair)]
    conditions: Vec<(String, String)>,
    /// Time between two renewals of a lease; the controller manager believes a node for 50 s
    #[arg(long, default_value = "20s", value_parser = keelet_pod::duration::parse_some)]
    lease: Duration,
    /// Time between two reports of a status
    #[arg(long, default_value = "5m", value_parser = keelet_pod::duration::parse_some)]
    heartbeat: Duration,
    /// Requests at once
    #[arg(long, default_value_t = 32)]
    in_flight: usize,
    /// Ends when the nodes are there; their leases expire
    #[arg(long)]
    once: bool,
}

#[derive(Args)]
struct Flip {
    #[command(flatten)]
    fleet: Fleet,
    /// How many of the nodes are flipped, from the first one on; each once
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// The type of the condition
    #[arg(long, default_value = "NetworkReady")]
    condition: String,
    /// The key of the taint that stands for it [default: readiness.k8s.io/CONDITION]
    #[arg(long)]
    taint: Option<String>,
    /// Flips a second, or `full` for as many as are answered
    #[arg(long, default_value = "50", value_parser = rate)]
    rate: Rate,
    /// Status patches at once
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    /// Removes the taints itself: a bare client to compare a controller with
    #[arg(long)]
    bare: bool,
    /// How long to wait for the last taints to go
    #[arg(long, default_value = "60s", value_parser = keelet_pod::duration::parse_some)]
    patience: Duration,
    /// Prints the report as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    run(Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let client = Client::try_from(Config::infer().await.context("no kubeconfig")?)?;
        match arguments.verb {
            None => keep(&client, arguments.keep).await,
            Some(Verb::Flip(flip)) => measure(&client, flip).await,
            Some(Verb::Gates(gates)) => gates::measure(&client, &gates).await,
            Some(Verb::Delete(Fleet { prefix })) => {
                fleet::delete(&client, &prefix).await?;
                Ok(ExitCode::SUCCESS)
            }
        }
    })
}

async fn keep(client: &Client, keep: Keep) -> anyhow::Result<ExitCode> {
    let shape = Shape {
        prefix: keep.fleet.prefix,
        nodes: keep.nodes,
        taints: keep.taints,
        labels: keep.labels.into_iter().collect(),
        conditions: keep.conditions.into_iter().collect(),
    };
    let pace = Pace { lease: keep.lease, heartbeat: keep.heartbeat, in_flight: keep.in_flight };
    let tally = fleet::Tally::default();
    let create = async {
        fleet::create(client, &shape, pace.in_flight, &tally).await?;
        fleet::accepted(client, &shape).await?;
        println!("ready: {} nodes", shape.nodes);
        anyhow::Ok(())
    };
    let progress = async {
        let mut ticks = interval(PROGRESS);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            eprintln!("{}", Said(&tally));
        }
    };
    if keep.once {
        tokio::select! {
            created = create => created?,
            () = progress => {}
            () = stopped() => {}
        }
        return Ok(ExitCode::SUCCESS);
    }
    // The first nodes need their renewals while the last ones are being created.
    let work = async {
        let (created, ()) = tokio::join!(create, async {
            tokio::select! {
                () = fleet::keep_alive(client, &shape, &pace, &tally) => {}
                () = progress => {}
            }
        });
        created
    };
    tokio::select! {
        ended = work => ended?,
        () = stopped() => {}
    }
    eprintln!("{}", Said(&tally));
    Ok(ExitCode::SUCCESS)
}

async fn measure(client: &Client, flip: Flip) -> anyhow::Result<ExitCode> {
    let settings = FlipSettings {
        shape: Shape::new(&flip.fleet.prefix, flip.nodes),
        taint: flip.taint.unwrap_or_else(|| format!("readiness.k8s.io/{}", flip.condition)),
        condition: flip.condition,
        rate: flip.rate,
        in_flight: flip.in_flight,
        remover: if flip.bare { Remover::Bare } else { Remover::Controller },
        patience: flip.patience,
    };
    let report = tokio::select! {
        report = flip::measure(client, &settings) => report?,
        () = stopped() => anyhow::bail!("interrupted"),
    };
    if flip.json {
        println!("{}", report.json());
    } else {
        println!("{} taints gone in {:.2} s, {} not", report.latency.count(), report.took.as_secs_f64(), report.missed);
        println!("answer to event:  {}", report.latency);
        println!("request to event: {}", report.since_sent);
        if settings.rate != Rate::Full {
            println!("sent too late by: {}", report.lateness);
        }
        let (early, conflicts, watches) = (report.before_answer, report.conflicts, report.watches);
        println!("events before the answer: {early}; conflicts: {conflicts}; watches: {watches}");
    }
    Ok(if report.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn stopped() {
    let (Ok(mut interrupted), Ok(mut terminated)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("\"{text}\" has no \"=\""))?;
    Ok((key.to_owned(), value.to_owned()))
}

fn rate(text: &str) -> Result<Rate, String> {
    match text {
        "full" => Ok(Rate::Full),
        text => match text.parse::<f64>() {
            Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(Rate::PerSecond(rate)),
            _ => Err(format!("invalid rate \"{text}\": a number, or \"full\"")),
        },
    }
}

/// A tally, as a line.
struct Said<'a>(&'a fleet::Tally);

// === impl Said ===

impl std::fmt::Display for Said<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = |counter: &std::sync::atomic::AtomicUsize| counter.load(Ordering::Relaxed);
        let Self(tally) = self;
        write!(
            out,
            "{} nodes, {} renewals, {} heartbeats, {} ms behind, {} errors",
            at(&tally.created),
            at(&tally.renewals),
            at(&tally.heartbeats),
            tally.behind.load(Ordering::Relaxed),
            at(&tally.errors),
        )?;
        match tally.last_error() {
            error if error.is_empty() => Ok(()),
            error => write!(out, "; the last: {error}"),
        }
    }
}
