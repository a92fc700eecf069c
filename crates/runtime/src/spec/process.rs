//! The command of a container, its user and its variables.

use std::collections::BTreeSet;

use keelet_cri::v1;
use oci_spec::runtime::{Process, ProcessBuilder, UserBuilder};

use super::{Given, SpecError, builder};

const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What to run: what the request says over what the image says. A request without a command uses the image's entry point, and
/// without arguments too the image's arguments as well.
fn command(config: &v1::ContainerConfig, image: &keelet_image::ImageConfig) -> Result<Vec<String>, SpecError> {
    let (entry, arguments) = match (config.command.is_empty(), config.args.is_empty()) {
        (true, true) => (&image.entrypoint, &image.cmd),
        (true, false) => (&image.entrypoint, &config.args),
        (false, _) => (&config.command, &config.args),
    };
    let command: Vec<_> = entry.iter().chain(arguments).cloned().collect();
    if command.is_empty() {
        return Err(SpecError("no command specified: neither the container nor its image has one".to_owned()));
    }
    Ok(command)
}

pub(super) fn process(given: &Given<'_>, security: &v1::LinuxContainerSecurityContext) -> Result<Process, SpecError> {
    let (config, image) = (given.config, given.image);
    let cwd = [&config.working_dir, &image.working_dir].into_iter().find(|dir| !dir.is_empty());
    let user = UserBuilder::default()
        .uid(given.user.uid)
        .gid(given.user.gid)
        .additional_gids(given.user.groups.clone())
        .build()
        .map_err(builder)?;
    let mut process = ProcessBuilder::default()
        .args(command(config, image)?)
        .cwd(cwd.map_or("/", String::as_str))
        .env(environment(given)?)
        .user(user)
        .terminal(config.tty)
        .capabilities(given.capabilities.clone())
        .no_new_privileges(security.no_new_privs)
        .build()
        .map_err(builder)?;
    let score = config.linux.as_ref().and_then(|linux| Some(linux.resources.as_ref()?.oom_score_adj));
    process
        .set_rlimits(None)
        .set_apparmor_profile(None)
        .set_oom_score_adj(score.map(|score| i32::try_from(score).unwrap_or_default().clamp(-1000, 1000)));
    Ok(process)
}

/// The image's variables and then the request's, each name once, the last word counts.
fn environment(given: &Given<'_>) -> Result<Vec<String>, SpecError> {
    let hostname = &given.sandbox_config.hostname;
    let mut variables = vec![format!("PATH={USUAL_PATH}")];
    if !hostname.is_empty() {
        variables.push(format!("HOSTNAME={hostname}"));
    }
    if given.config.tty {
        variables.push("TERM=xterm".to_owned());
    }
    variables.push(format!("HOME={}", given.home));
    variables.extend(given.image.env.iter().cloned());
    for v1::KeyValue { key, value } in &given.config.envs {
        let value = std::str::from_utf8(value).map_err(|_| SpecError(format!("the variable {key} is not UTF-8")))?;
        variables.push(format!("{key}={value}"));
    }
    Ok(last_of_each_name(variables))
}

fn last_of_each_name(variables: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let name = |variable: &str| variable.split('=').next().unwrap_or_default().to_owned();
    let mut kept: Vec<_> = variables.into_iter().rev().filter(|variable| seen.insert(name(variable))).collect();
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use keelet_cri::v1;

    use super::{command, last_of_each_name};

    #[test]
    fn the_request_has_a_say_over_the_image() {
        let words = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
        let image = keelet_image::ImageConfig { entrypoint: words(&["e"]), cmd: words(&["c"]), ..Default::default() };
        let of = |entry: &[&str], args: &[&str]| {
            let config = v1::ContainerConfig { command: words(entry), args: words(args), ..Default::default() };
            command(&config, &image).expect("a command")
        };
        assert_eq!(of(&[], &[]), ["e", "c"]);
        assert_eq!(of(&[], &["a"]), ["e", "a"]);
        assert_eq!(of(&["x"], &[]), ["x"], "the image's arguments belong to its entry point");
        assert_eq!(of(&["x"], &["a"]), ["x", "a"]);
        let error = command(&v1::ContainerConfig::default(), &keelet_image::ImageConfig::default());
        assert!(error.expect_err("nothing to run").0.contains("no command specified"));
    }

    #[test]
    fn the_last_word_on_a_variable_counts() {
        let variables = ["A=1", "B=2", "A=3"].map(str::to_owned).to_vec();
        assert_eq!(last_of_each_name(variables), ["B=2", "A=3"]);
    }
}
