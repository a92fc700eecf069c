//! What containers are asked to stop with.

use std::str::FromStr;

use keelet_cri::v1;
use nix::sys::signal::Signal;

/// What a container is asked to stop with: its own word, the image's, or SIGTERM.
pub(crate) fn stop_signal(config: &v1::ContainerConfig, image: &keelet_image::ImageConfig) -> i32 {
    let asked = v1::Signal::try_from(config.stop_signal).unwrap_or_default();
    let name = match asked {
        v1::Signal::RuntimeDefault => image.stop_signal.clone(),
        named => named.as_str_name().trim_start_matches("SIGNAL_").to_owned(),
    };
    signal_number(&name).unwrap_or(libc::SIGTERM)
}

/// `SIGTERM`, `TERM` or `15`; `SIGRTMIN+3`, and CRI's way to write that.
fn signal_number(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse() {
        return (1..=64).contains(&number).then_some(number);
    }
    let name = name.to_ascii_uppercase().replace("MINUS", "-").replace("PLUS", "+");
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    // The C library keeps the first two real-time signals for itself.
    let (first, last) = (34, 64);
    match name {
        "RTMIN" => Some(first),
        "RTMAX" => Some(last),
        _ => {
            let plus = name.strip_prefix("RTMIN+").and_then(|more| Some(first + more.parse::<i32>().ok()?));
            let minus = name.strip_prefix("RTMAX-").and_then(|less| Some(last - less.parse::<i32>().ok()?));
            plus.or(minus).filter(|number| (first..=last).contains(number)).or_else(|| named(name))
        }
    }
}

fn named(name: &str) -> Option<i32> {
    // Some have a second name.
    let name = match name {
        "IOT" => "ABRT",
        "CLD" => "CHLD",
        "POLL" => "IO",
        name => name,
    };
    Signal::from_str(&format!("SIG{name}")).ok().map(|signal| signal as i32)
}

#[cfg(test)]
mod tests {
    use keelet_cri::v1;

    use super::{signal_number, stop_signal};

    #[test]
    fn signals_are_known_by_all_their_names() {
        assert_eq!(signal_number("SIGTERM"), Some(15));
        assert_eq!(signal_number("quit"), Some(3));
        assert_eq!(signal_number("9"), Some(9));
        assert_eq!(signal_number("SIGRTMIN+3"), Some(37));
        assert_eq!(signal_number("SIGRTMAX-1"), Some(63));
        assert_eq!(signal_number("SIGRTMIN+99"), None);
        assert_eq!(signal_number("nonsense"), None);
    }

    #[test]
    fn a_container_is_stopped_with_its_own_signal_or_the_images() {
        let with = |signal: v1::Signal| v1::ContainerConfig { stop_signal: signal.into(), ..Default::default() };
        let image = keelet_image::ImageConfig { stop_signal: "SIGINT".to_owned(), ..Default::default() };
        assert_eq!(stop_signal(&with(v1::Signal::Sigusr1), &image), libc::SIGUSR1);
        assert_eq!(stop_signal(&with(v1::Signal::Sigrtminplus3), &image), 37);
        assert_eq!(stop_signal(&with(v1::Signal::RuntimeDefault), &image), libc::SIGINT);
        assert_eq!(
            stop_signal(&with(v1::Signal::RuntimeDefault), &keelet_image::ImageConfig::default()),
            libc::SIGTERM
        );
    }
}
