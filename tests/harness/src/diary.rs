//! The directory that test and containers share, and the diary in it.

use std::fs;

use crate::{Node, eventually};

// === impl Node ===

impl Node {
    /// Creates a file in it atomically.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path("ctl.new"), text).expect("a file");
        fs::rename(self.path("ctl.new"), self.path("ctl").join(name)).expect("a file in its place");
    }

    /// Creates an empty file in it.
    pub fn touch(&self, name: &str) {
        self.write(name, "");
    }

    /// Removes a file from it.
    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path("ctl").join(name)).expect("a file");
    }

    /// Makes an [actor](crate::Actor) exit.
    pub fn exit(&self, pod: &str, container: &str, code: i32) {
        self.write(&format!("{pod}.{container}.exit"), &format!("{code}\n"));
    }

    /// The lines that containers wrote.
    pub fn diary(&self) -> Vec<String> {
        let text = fs::read(self.path("ctl/diary")).expect("a diary");
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }

    /// How often a line is in the diary.
    pub fn times(&self, line: &str) -> usize {
        self.diary().iter().filter(|found| *found == line).count()
    }

    /// How often containers of a pod have started, according to the diary.
    pub fn starts<const N: usize>(&self, pod: &str, names: [&str; N]) -> [usize; N] {
        names.map(|name| self.times(&format!("start {pod}.{name}")))
    }

    /// The first position of a line in the diary.
    #[track_caller]
    pub fn first(&self, line: &str) -> usize {
        let diary = self.diary();
        diary.iter().position(|found| found == line).unwrap_or_else(|| panic!("no {line:?} in {diary:#?}"))
    }

    /// Asserts that these lines are in the diary, each first found after the one before it.
    #[track_caller]
    pub fn in_order(&self, lines: &[&str]) {
        let places: Vec<_> = lines.iter().map(|line| self.first(line)).collect();
        assert!(places.is_sorted(), "{lines:?} are at {places:?} of {:#?}", self.diary());
    }

    /// Waits until a line is in the diary so many times.
    pub async fn written(&self, line: &str, times: usize) {
        eventually(&format!("{line:?} to be written {times} times"), async || {
            if self.times(line) >= times { Ok(()) } else { Err(format!("{:#?}", self.diary())) }
        })
        .await;
    }
}
