//! Images and pods that put something else where the runtime looks for a directory or a file.
//!
//! One table: every place in a container's root that the runtime touches ([`PLACES`]), in every shape that an image or a volume can give
//! it ([`Shape`]). What a link leads to exists on the node and, unless the shape says otherwise, at the same path in the image: so the
//! runtime gets as far as using it. For each row the container either runs, and commands run in it, or is refused with an error that names
//! the place; the node's files stay as they are. The last case swaps such places in a loop while containers start.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, symlink},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use keelet_cri::v1;
use rustix::fs::{CWD, Mode, RenameFlags, mkfifoat, renameat_with};

use crate::{
    Shown, cases, users,
    world::{Pod, World, security, slower, until},
};

cases![
    absolute_links_stay_in_the_container,
    relative_links_stay_in_the_container,
    chains_of_links_stay_in_the_container,
    links_to_what_only_the_node_has_stay_in_the_container,
    links_in_a_circle_are_refused,
    files_in_the_place_of_directories_are_refused,
    fifos_block_nothing,
    links_stay_in_a_container_with_users_of_its_own,
    volumes_change_nothing_where_a_link_leads_to_a_mount_of_the_runtime,
    places_that_are_swapped_during_a_start_stay_in_the_container,
    an_image_that_is_swapped_during_a_start_leads_nowhere,
];

/// What is found in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    AbsoluteLink,
    RelativeLink,
    Chain,
    /// What it leads to exists on the node and not in the image.
    Dangling,
    Circle,
    File,
    Fifo,
}

/// What the runtime looks for in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    /// A directory of the image itself: a link is refused.
    OwnDirectory,
    Directory,
    File,
    /// Something in a file system that the runtime mounts: what the image has there is never seen.
    Nothing,
}

/// Whose users a pod has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Users {
    Nodes,
    Own,
}

/// A place in a container's root that the runtime touches.
struct Place {
    path: &'static str,
    wants: Wants,
    /// What the container asks for, so that the place is touched.
    asks: Asks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// Every container does.
    Always,
    /// A volume at that path.
    Volume,
    /// A volume at that path, which is in another volume.
    VolumeInVolume,
    /// A file of the node at that path.
    FileMount,
    WorkingDirectory,
    /// A user by its name.
    User,
}

const fn place(path: &'static str, wants: Wants, asks: Asks) -> Place {
    Place { path, wants, asks }
}

const PLACES: &[Place] = &[
    place("/dev", Wants::OwnDirectory, Asks::Always),
    place("/proc", Wants::OwnDirectory, Asks::Always),
    place("/sys", Wants::OwnDirectory, Asks::Always),
    place("/dev/pts", Wants::Nothing, Asks::Always),
    place("/dev/shm", Wants::Nothing, Asks::Always),
    place("/dev/mqueue", Wants::Nothing, Asks::Always),
    place("/dev/null", Wants::Nothing, Asks::Always),
    place("/dev/ptmx", Wants::Nothing, Asks::Always),
    place("/dev/fd", Wants::Nothing, Asks::Always),
    place("/sys/fs/cgroup", Wants::Nothing, Asks::Always),
    place("/dev/termination-log", Wants::Nothing, Asks::FileMount),
    place("/etc", Wants::Directory, Asks::Always),
    place("/etc/hosts", Wants::File, Asks::Always),
    place("/etc/hostname", Wants::File, Asks::Always),
    place("/etc/resolv.conf", Wants::File, Asks::Always),
    place("/etc/passwd", Wants::File, Asks::User),
    place("/etc/group", Wants::File, Asks::User),
    place("/logs", Wants::Directory, Asks::FileMount),
    place("/logs/termination", Wants::File, Asks::FileMount),
    place("/data", Wants::Directory, Asks::Volume),
    place("/deep/er/data", Wants::Directory, Asks::Volume),
    place("/volume/inner", Wants::Directory, Asks::VolumeInVolume),
    place("/volume/deep/inner", Wants::Directory, Asks::VolumeInVolume),
    place("/work", Wants::Directory, Asks::WorkingDirectory),
    place("/deep/er/work", Wants::Directory, Asks::WorkingDirectory),
];

async fn absolute_links_stay_in_the_container(world: &mut World) -> Shown {
    all_places(world, Shape::AbsoluteLink, Users::Nodes).await
}

async fn relative_links_stay_in_the_container(world: &mut World) -> Shown {
    all_places(world, Shape::RelativeLink, Users::Nodes).await
}

async fn chains_of_links_stay_in_the_container(world: &mut World) -> Shown {
    all_places(world, Shape::Chain, Users::Nodes).await
}

async fn links_to_what_only_the_node_has_stay_in_the_container(world: &mut World) -> Shown {
    all_places(world, Shape::Dangling, Users::Nodes).await
}

async fn links_in_a_circle_are_refused(world: &mut World) -> Shown {
    all_places(world, Shape::Circle, Users::Nodes).await
}

async fn files_in_the_place_of_directories_are_refused(world: &mut World) -> Shown {
    all_places(world, Shape::File, Users::Nodes).await
}

async fn fifos_block_nothing(world: &mut World) -> Shown {
    all_places(world, Shape::Fifo, Users::Nodes).await
}

/// The maker of such a container runs as the pod's root, which has no rights on the node. The same holds.
async fn links_stay_in_a_container_with_users_of_its_own(world: &mut World) -> Shown {
    match users::cannot() {
        Some(skipped) => skipped,
        None => all_places(world, Shape::AbsoluteLink, Users::Own).await,
    }
}

/// Whether a container starts that has this shape in this place.
fn starts(place: &Place, shape: Shape) -> bool {
    let is_link = matches!(shape, Shape::AbsoluteLink | Shape::RelativeLink | Shape::Chain | Shape::Dangling);
    match (place.wants, place.asks) {
        (Wants::Nothing, _) => true,
        (Wants::OwnDirectory, _) => false,
        // A name cannot be looked up; a number could.
        (Wants::File, Asks::User) => {
            matches!(shape, Shape::AbsoluteLink | Shape::RelativeLink | Shape::Chain | Shape::File)
        }
        (Wants::File, _) => shape != Shape::Circle,
        (Wants::Directory, _) => is_link,
    }
}

/// Starts a container for each place, and looks at the node after each.
async fn all_places(world: &mut World, shape: Shape, users: Users) -> Shown {
    let pod = match users {
        Users::Nodes => world.pod("hostile").await,
        Users::Own => users::pod(world, "hostile", 0).await,
    };
    let mut wrong = Vec::new();
    for (number, place) in PLACES.iter().enumerate() {
        let stand = Stand::new(world, &format!("{number}"));
        stand.put(place, shape);
        let before = stand.on_node();
        let mut config = stand.config(world, place);
        if users == Users::Own {
            security(&mut config).namespace_options = Some(users::options(0));
        }
        let began = attempt(world, &pod, config, place.path).await;
        if stand.on_node() != before {
            wrong.push(format!("{}: {}", place.path, changes(&before, &stand.on_node())));
        }
        match began {
            Ok(()) if !starts(place, shape) => {
                wrong.push(format!("{}: it started and should have been refused", place.path))
            }
            Err(why) if starts(place, shape) => wrong.push(format!("{}: it did not start: {why}", place.path)),
            Err(why) if !why.to_string().contains(place.path) => {
                wrong.push(format!("{}: the refusal does not name it: {why}", place.path));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{shape:?} in the place of\n{}", wrong.join("\n"));
    Shown::Yes
}

/// Starts a container, runs a command in it and removes it. An error is the runtime's refusal.
async fn attempt(world: &World, pod: &Pod, config: v1::ContainerConfig, what: &str) -> Result<(), keelet_cri::Error> {
    let name = config.metadata.clone().unwrap().name;
    let id = patient("creating", what, world.create(pod, config)).await?;
    let started = patient("starting", what, world.cri().start_container(&id)).await;
    if started.is_ok() {
        until(&format!("the container with {what} ran"), async || world.said(pod, &name).contains("ran").then_some(()))
            .await;
        match world.try_exec(&id, "echo inside", 60).await {
            Ok(answer) => assert_eq!(answer.stdout, b"inside\n", "a command in the container with {what}"),
            // The working directory is another one by now.
            Err(error) => assert!(error.to_string().contains(what), "a command in the container with {what}: {error}"),
        }
    }
    world.cri().remove_container(&id).await.expect("removed");
    started
}

/// Waits long enough for a busy machine; what waits for a FIFO waits for ever.
async fn patient<T>(doing: &str, what: &str, work: impl Future<Output = T>) -> T {
    let longest = Duration::from_secs(60).saturating_mul(slower());
    tokio::time::timeout(longest, work).await.unwrap_or_else(|_| panic!("{doing} a container with {what} blocks"))
}

/// An image, volumes, and what of the node could be harmed.
struct Stand {
    name: String,
    image: PathBuf,
    volume: PathBuf,
    file: PathBuf,
    outside: PathBuf,
}

// === impl Stand ===

impl Stand {
    fn new(world: &World, name: &str) -> Self {
        let dir = world.dir.join("stands").join(name);
        let stand = Self {
            name: format!("row{name}"),
            image: dir.join("image"),
            volume: dir.join("volume"),
            file: dir.join("file"),
            outside: dir.join("outside"),
        };
        for dir in [&stand.image.join("bin"), &stand.image.join("etc"), &stand.volume, &stand.outside] {
            fs::create_dir_all(dir).unwrap();
        }
        // Looked up and copied once: the images of a case share them.
        let programs = world.dir.join("programs");
        if !programs.exists() {
            for (place, file) in keelet_fixtures::files(&["sh", "sleep"]) {
                fs::create_dir_all(programs.join(&place).parent().unwrap()).unwrap();
                fs::copy(file, programs.join(place)).unwrap();
            }
        }
        link_all(&programs, &stand.image);
        fs::write(stand.image.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n").unwrap();
        fs::write(stand.image.join("etc/group"), "root:x:0:\n").unwrap();
        fs::write(&stand.file, "").unwrap();
        // What a fault would remove, and what it would mount over or write to.
        for (name, text) in [("ptmx", ""), ("file", "the node's\n"), ("passwd", "root:x:0:0:root:/:/bin/sh\n")] {
            fs::write(stand.outside.join(name), text).unwrap();
        }
        stand
    }

    /// Puts the shape in its place.
    fn put(&self, place: &Place, shape: Shape) {
        let inside = match place.asks {
            Asks::VolumeInVolume => self.volume.join(place.path.strip_prefix("/volume/").unwrap()),
            _ => self.image.join(&place.path[1..]),
        };
        fs::create_dir_all(inside.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&inside);
        let _ = fs::remove_dir_all(&inside);
        let target = match (place.wants, place.asks) {
            (Wants::File, Asks::User) => self.outside.join("passwd"),
            (Wants::File, _) => self.outside.join("file"),
            _ => self.outside.clone(),
        };
        let in_image = |path: &Path| self.image.join(path.strip_prefix("/").unwrap());
        if shape != Shape::Dangling {
            fs::create_dir_all(in_image(&self.outside)).unwrap();
            fs::write(in_image(&self.outside.join("file")), "the image's\n").unwrap();
            fs::write(in_image(&self.outside.join("passwd")), "root:x:0:0:root:/:/bin/sh\n").unwrap();
        }
        match shape {
            Shape::AbsoluteLink | Shape::Dangling => symlink(&target, &inside).unwrap(),
            Shape::RelativeLink => symlink(format!("{}{}", "../".repeat(20), target.display()), &inside).unwrap(),
            Shape::Chain => {
                symlink("/hop", &inside).unwrap();
                symlink("bin/../step", self.image.join("hop")).unwrap();
                symlink(&target, self.image.join("step")).unwrap();
            }
            Shape::Circle => symlink(place.path, &inside).unwrap(),
            Shape::File => fs::write(&inside, "root:x:0:0:root:/:/bin/sh\n").unwrap(),
            Shape::Fifo => mkfifoat(CWD, &inside, Mode::from_raw_mode(0o666)).unwrap(),
        }
    }

    fn config(&self, world: &World, place: &Place) -> v1::ContainerConfig {
        let mut config = self.plain(world);
        match place.asks {
            Asks::Always => {}
            Asks::Volume => config.mounts.push(volume(place.path, &self.volume)),
            Asks::VolumeInVolume => {
                config.mounts.push(volume("/volume", &self.volume));
                config.mounts.push(volume(place.path, &self.volume));
            }
            Asks::FileMount => {
                let path = if place.path == "/logs" { "/logs/termination" } else { place.path };
                config.mounts.push(volume(path, &self.file));
            }
            Asks::WorkingDirectory => config.working_dir = place.path.to_owned(),
            Asks::User => security(&mut config).run_as_username = "root:root".to_owned(),
        }
        config
    }

    fn plain(&self, world: &World) -> v1::ContainerConfig {
        let mut config = world.container(&self.name, "echo ran; exec /bin/sleep 1000");
        config.image.as_mut().unwrap().image = format!("rootfs:{}", self.image.display());
        config
    }

    /// What the node has, one line for each file.
    fn on_node(&self) -> Vec<String> {
        described(&[&self.outside, &self.volume, &self.image])
    }
}

fn volume(inside: &str, outside: &Path) -> v1::Mount {
    v1::Mount { container_path: inside.to_owned(), host_path: outside.display().to_string(), ..v1::Mount::default() }
}

/// The same files again, as hard links.
fn link_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            link_all(&source, &target);
        } else {
            fs::hard_link(source, target).unwrap();
        }
    }
}

/// What differs, in lines of a description.
fn changes(before: &[String], after: &[String]) -> String {
    let without = |lines: &[String], others: &[String]| {
        lines.iter().filter(|line| !others.contains(line)).map(|line| format!("\n    {line}")).collect::<String>()
    };
    format!("the node's files changed: gone{}\n  new{}", without(before, after), without(after, before))
}

fn described(dirs: &[&Path]) -> Vec<String> {
    let mut lines = Vec::new();
    dirs.iter().for_each(|dir| describe(dir, &mut lines));
    lines
}

/// A file or directory with all that is in it. Device numbers show what was mounted over it.
fn describe(path: &Path, lines: &mut Vec<String>) {
    let found = path.symlink_metadata().unwrap();
    let kind = found.file_type();
    let (mode, owner, device) = (found.mode(), found.uid(), found.dev());
    let holds = match () {
        () if kind.is_symlink() => format!("-> {}", fs::read_link(path).unwrap().display()),
        () if kind.is_file() && found.len() < 100 => format!("{:?}", fs::read_to_string(path).unwrap()),
        () if kind.is_char_device() => format!("device {:x}", found.rdev()),
        () => String::new(),
    };
    lines.push(format!("{} mode {mode:o} owner {owner} on {device} {holds}", path.display()));
    if kind.is_dir() {
        let mut entries: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        entries.iter().for_each(|entry| describe(entry, lines));
    }
}

/// Where a volume's path is a link to what the runtime mounts or makes itself, the runtime makes nothing in the volume.
async fn volumes_change_nothing_where_a_link_leads_to_a_mount_of_the_runtime(world: &mut World) -> Shown {
    let pod = world.pod("onto").await;
    let mut wrong = Vec::new();
    let targets = ["/", "/dev", "/dev/pts", "/dev/shm", "/proc", "/sys", "/etc", "../../..", "/dev/../dev"];
    for (number, target) in targets.into_iter().enumerate() {
        for in_volume in [false, true] {
            let stand = Stand::new(world, &format!("{number}-{in_volume}"));
            fs::write(stand.volume.join("ptmx"), "the volume's\n").unwrap();
            let other = stand.outside.join("volume");
            fs::create_dir(&other).unwrap();
            let mut config = stand.plain(world);
            let path = if in_volume { "/holder/data" } else { "/data" };
            if in_volume {
                symlink(target, other.join("data")).unwrap();
                config.mounts.push(volume("/holder", &other));
            } else {
                symlink(target, stand.image.join("data")).unwrap();
            }
            config.mounts.push(volume(path, &stand.volume));
            let before = stand.on_node();
            let began = attempt(world, &pod, config, &format!("a volume on {target:?}")).await;
            let after = stand.on_node();
            if after != before {
                wrong.push(format!("{path} -> {target}: {}", changes(&before, &after)));
            }
            if let Err(why) = began
                && !why.to_string().contains(path)
            {
                wrong.push(format!("{path} -> {target}: the refusal does not name it: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Shown::Yes
}

/// How often each place is tried while it is being swapped.
const ROUNDS: usize = 12;

/// A process of the pod exchanges a directory or file of a shared volume with a link, as fast as it can, while containers start that
/// use it: as a mount point, below a mount point, as the working directory, as what the runtime mounts itself.
///
/// No check between looking and using decides this race, so there is none to be removed: a volume is opened before anything of the pod
/// can change it, and its place is looked up after `pivot_root`, when the node's files cannot be named any more. Whichever side wins, the
/// link leads to the container's own files. The next case is the one that a check decides, and shows harm without it.
async fn places_that_are_swapped_during_a_start_stay_in_the_container(world: &mut World) -> Shown {
    let pod = world.pod("race").await;
    // The volume's place, the name in it that is swapped, and what the container asks for below it.
    let rows: [(&str, &str, &str, Asks); 12] = [
        ("/data", "point", "/data/point", Asks::Volume),
        ("/data", "point", "/data/point/deep/er", Asks::Volume),
        ("/data", "point", "/data/point", Asks::WorkingDirectory),
        ("/data", "point", "/data/point/deep/er", Asks::WorkingDirectory),
        ("/data", "file", "/data/file", Asks::FileMount),
        ("/data", "point", "/data/point/termination", Asks::FileMount),
        ("/etc", "file", "/etc/file", Asks::FileMount),
        ("/dev", "point", "/dev/point", Asks::Volume),
        ("/dev", "file", "/dev/file", Asks::FileMount),
        ("/etc", "hosts", "/etc/hosts", Asks::Always),
        ("/etc", "hostname", "/etc/hostname", Asks::Always),
        ("/etc", "resolv.conf", "/etc/resolv.conf", Asks::Always),
    ];
    let mut wrong = Vec::new();
    for (number, (at, name, path, asks)) in rows.into_iter().enumerate() {
        let stand = Stand::new(world, &format!("swap{number}"));
        let in_image = stand.image.join(stand.outside.strip_prefix("/").unwrap());
        fs::create_dir_all(&in_image).unwrap();
        fs::write(in_image.join("file"), "the image's\n").unwrap();
        let shared = stand.outside.with_file_name("shared");
        fs::create_dir_all(shared.join("point/deep/er")).unwrap();
        fs::write(shared.join("point/termination"), "").unwrap();
        let target = if name == "point" {
            stand.outside.clone()
        } else {
            fs::write(shared.join(name), "").unwrap();
            stand.outside.join("file")
        };
        symlink(target, shared.join("trap")).unwrap();
        let before = stand.on_node();
        let shape = |config: &mut v1::ContainerConfig| config.mounts.push(volume(at, &shared));
        wrong.extend(race(world, &pod, &stand, &shared, name, &place(path, Wants::Directory, asks), shape).await);
        if stand.on_node() != before {
            wrong.push(format!("{path}: {}", changes(&before, &stand.on_node())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Shown::Yes
}

/// The same for a directory of the image itself. Only a pod that mounts the directory of a `rootfs:` image can do so. libcontainer fills
/// `/dev` by path before `pivot_root`; what decides this race is that the creator holds these directories open (`hold_own_directories`).
async fn an_image_that_is_swapped_during_a_start_leads_nowhere(world: &mut World) -> Shown {
    let pod = world.pod("image").await;
    let mut wrong = Vec::new();
    for (path, asks) in [
        ("/dev", Asks::Always),
        ("/proc", Asks::Always),
        ("/sys", Asks::Always),
        ("/etc", Asks::Always),
        ("/etc/hosts", Asks::Always),
        ("/etc/resolv.conf", Asks::Always),
        ("/dev/shm", Asks::Always),
        ("/dev/pts", Asks::Always),
        ("/data", Asks::Volume),
        ("/work", Asks::WorkingDirectory),
    ] {
        let name = &path[1..];
        let is_file = path.starts_with("/etc/");
        let stand = Stand::new(world, &format!("swap-{}", name.replace('/', "-")));
        let in_image = stand.image.join(stand.outside.strip_prefix("/").unwrap());
        fs::create_dir_all(&in_image).unwrap();
        let target = if is_file {
            fs::write(in_image.join("file"), "the image's\n").unwrap();
            fs::write(stand.image.join(name), "").unwrap();
            stand.outside.join("file")
        } else {
            fs::create_dir_all(stand.image.join(name)).unwrap();
            stand.outside.clone()
        };
        symlink(target, stand.image.join("trap")).unwrap();
        let before = described(&[&stand.outside, &stand.volume]);
        let place = place(path, Wants::Directory, asks);
        wrong.extend(race(world, &pod, &stand, &stand.image, name, &place, |_| {}).await);
        let after = described(&[&stand.outside, &stand.volume]);
        if after != before {
            wrong.push(format!("{path}: {}", changes(&before, &after)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Shown::Yes
}

/// Starts containers while another one of their pod exchanges a name in a directory with the link beside it. What is wrong with how
/// they were refused.
async fn race(
    world: &World,
    pod: &Pod,
    stand: &Stand,
    shared: &Path,
    name: &str,
    place: &Place,
    shape: impl Fn(&mut v1::ContainerConfig),
) -> Vec<String> {
    let mut attacker = world.container(&format!("{}-attacker", stand.name), "");
    attacker.command = ["/proc/self/exe", "swap", "/shared", name, "trap"].map(str::to_owned).to_vec();
    attacker.mounts.push(volume("/shared", shared));
    let attacker_name = attacker.metadata.clone().unwrap().name;
    let attacker = world.start(pod, attacker).await;
    until("the attacker swaps", async || world.said(pod, &attacker_name).contains("swapping").then_some(())).await;
    let mut wrong = Vec::new();
    for round in 0..ROUNDS {
        let mut config = stand.config(world, place);
        shape(&mut config);
        config.metadata.as_mut().unwrap().name = format!("{}-{round}", stand.name);
        config.log_path = format!("{}-{round}.log", stand.name);
        if let Err(why) = attempt(world, pod, config, place.path).await
            && !why.to_string().contains(place.path)
        {
            wrong.push(format!("{}: the refusal does not name it: {why}", place.path));
        }
    }
    assert_eq!(world.state(&attacker).await, v1::ContainerState::ContainerRunning, "the attacker of {}", place.path);
    world.cri().remove_container(&attacker).await.expect("removed");
    wrong
}

/// The attack itself, inside the container.
pub(crate) fn swap(dir: &str, one: &str, other: &str) -> ExitCode {
    let (one, other) = (Path::new(dir).join(one), Path::new(dir).join(other));
    for count in 0_u64.. {
        if let Err(error) = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE) {
            println!("{}: {error}", one.display());
            return ExitCode::FAILURE;
        }
        if count == 1000 {
            println!("swapping");
        }
    }
    ExitCode::SUCCESS
}
