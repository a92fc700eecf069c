//! The pods of the files, all of them good, each name once.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::PathBuf,
};

use keelet_pod::{Features, Pod};

use crate::validate::{self, InvalidManifests};

/// The pods in the order of the files, and warnings; or what is wrong.
pub fn pods(files: &[PathBuf], features: &Features) -> Result<(Vec<Pod>, String), InvalidManifests> {
    let (pods, warnings) = validate::pods(files, features)?;
    let wrong: String = twice(&pods).iter().map(|message| format!("error: {message}\n")).collect();
    if !wrong.is_empty() {
        return Err(InvalidManifests(wrong));
    }
    Ok((pods.into_iter().map(|(_, pod)| pod).collect(), warnings))
}

fn twice(pods: &[(String, Pod)]) -> Vec<String> {
    let mut names: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (file, pod) in pods {
        match names.entry((&pod.namespace, &pod.name)) {
            Entry::Vacant(entry) => drop(entry.insert(file)),
            Entry::Occupied(first) => {
                let first = first.get();
                wrong.push(format!(
                    "{file}: pod {}/{} is also in {first}; a name is for one pod",
                    pod.namespace, pod.name
                ));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: b}]}\n";

    #[test]
    fn one_name_is_for_one_pod_over_all_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("a.yaml"), format!("{POD}---\n{}", POD.replace("web", "db"))).unwrap();
        fs::write(path("b.yaml"), POD).unwrap();
        fs::write(path("bad.yaml"), POD.replace("image", "imag")).unwrap();
        let (loaded, _) = pods(&[path("a.yaml")], &Features::default()).unwrap();
        assert_eq!(loaded.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["web", "db"]);
        let wrong = pods(&[path("a.yaml"), path("b.yaml")], &Features::default()).unwrap_err().to_string();
        assert!(
            wrong.contains("b.yaml: pod default/web is also in ") && wrong.ends_with("a name is for one pod\n"),
            "{wrong}"
        );
        let wrong = pods(&[path("bad.yaml")], &Features::default()).unwrap_err().to_string();
        assert!(wrong.contains("Unknown field: did you mean \"image\"?"), "{wrong}");
    }
}
