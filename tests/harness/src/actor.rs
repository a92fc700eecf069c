//! Containers that a test controls.
//!
//! An actor writes into the diary when it starts (`start POD.NAME`), when it gets SIGTERM (`term POD.NAME`) and when it
//! exits by itself (`end POD.NAME`). It exits on [`Node::exit`](crate::Node::exit). It needs bash, and perl where it
//! serves pages; each request is in the diary (`asked PATH POD.NAME`).

use std::fmt;

/// A container, as a field of a manifest.
#[derive(Clone, Debug)]
pub struct Actor {
    name: String,
    first: String,
    on_term: String,
    fields: Vec<String>,
}

/// The beginning of every actor: its name, the diary, and naps that need no process. Once it has written that it
/// started, it handles signals; an earlier SIGTERM is handled then. (Kubernetes expands two dollars to one, so the
/// shell's PID has its longer name.)
const BEGINNING: &str = r#"
cd /ctl; me=$HOSTNAME.@
say() { echo "$1 $me" >>diary; }
exec 8<> <(:)
nap() { read -rt "${1:-0.1}" -u 8 _ || :; }
await() { until [ -e "$1" ]; do nap; done; }
hear() { until [ "$(grep -cx "$1" diary)" -ge "${2:-1}" ]; do nap; done; }
trap 'say end' EXIT
early=
trap 'early=yes' TERM
say start
run=$(grep -cx "start $me" diary)
trap 'say term; $' TERM
[ -z "$early" ] || kill -TERM $BASHPID
"#;

const END: &str = r"
while :; do
    if [ -e $me.exit ]; then read -r code <$me.exit; rm $me.exit; exit $code; fi
    nap
done
";

/// A server of pages on port 8080, one request at a time. The file `POD.NAME.page` and the path, with every `/` as `-`,
/// has the status and, for 3xx, the place.
const PAGES: &str = r#"
perl -MIO::Socket::INET -e '
    my $listener = IO::Socket::INET->new(LocalPort => 8080, Listen => 16, ReuseAddr => 1) or die "$!";
    while (1) {
        my $client = $listener->accept or next;
        # A client that begins with a TLS handshake gets an error in plain HTTP, as from other servers.
        recv($client, my $first, 1, 2);
        if ($first eq "\x16") { print $client "HTTP/1.1 400 Not TLS\r\nConnection: close\r\n\r\n"; close $client; next }
        my ($path) = (<$client> // "") =~ m{^[A-Z]+ (\S+) HTTP};
        while (<$client>) { last if /^\r?\n$/ }
        if (open my $diary, ">>", "diary") { print $diary "asked " . ($path // "nonsense") . " $ARGV[0]\n" }
        my ($status, $place) = (200, "");
        if (open my $page, "<", $ARGV[0] . ".page" . ($path // "") =~ tr{/}{-}r) { ($status, $place) = split " ", <$page> }
        $place = $place ? "Location: $place\r\n" : "";
        print $client "HTTP/1.1 $status As told\r\n${place}Content-Length: 3\r\nConnection: close\r\n\r\nok\n";
        close $client;
    }' "$me" &
"#;

/// HTTP/2 in the clear on port 5000: health for gRPC, 200 for others. `POD.NAME.unwell` makes it answer NOT_SERVING.
const GRPC: &str = r#"
perl -MIO::Socket::INET -e '
    sub frame { my ($kind, $flags, $stream, $body) = @_; substr(pack("N", length $body), 1) . pack("CCN", $kind, $flags, $stream) . $body }
    sub literal { pack("C", 0) . join "", map { pack("C", length) . $_ } @_ }
    my $listener = IO::Socket::INET->new(LocalPort => 5000, Listen => 16, ReuseAddr => 1) or die "$!";
    while (1) {
        my $client = $listener->accept or next;
        binmode $client;
        read($client, my $preface, 24) == 24 or next;
        $preface =~ /^PRI / or next;
        print $client frame(4, 0, 0, ""); $client->flush;
        my $asked = "";
        while (read($client, my $head, 9) == 9) {
            my ($high, $low, $kind, $flags, $number) = unpack "CnCCN", $head;
            my $length = $high << 16 | $low;
            $length == 0 or read($client, my $body, $length) == $length or last;
            print $client frame(4, 1, 0, "") if $kind == 4 && !($flags & 1);
            $asked = $kind == 0 ? "grpc" : "page" if $kind < 2;
            if ($kind < 2 && $flags & 1) {
                if (open my $diary, ">>", "diary") { print $diary "asked $asked $ARGV[0]\n" }
                my $well = -e "$ARGV[0].unwell" ? 2 : 1;
                print $client $asked eq "page"
                    ? frame(1, 5, $number, "\x88")
                    : frame(1, 4, $number, "\x88" . literal("content-type", "application/grpc"))
                        . frame(0, 0, $number, pack "CNCC", 0, 2, 8, $well)
                        . frame(1, 5, $number, literal("grpc-status", "0"));
            }
            $client->flush;
        }
    }' "$me" &
"#;

// === impl Actor ===

impl Actor {
    /// An actor that runs until the test ends it, and exits with 0 on SIGTERM.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), first: String::new(), on_term: "exit 0".to_owned(), fields: Vec::new() }
    }

    /// Its first commands, in bash: `$run` is the number of its instance, `await FILE` waits for a file, `say WORD`
    /// writes into the diary, `hear LINE [TIMES]` waits until the diary has a line (so many times).
    #[must_use]
    pub fn does(mut self, script: &str) -> Self {
        self.first += script;
        self.first += "\n";
        self
    }

    /// Its commands on SIGTERM, instead of exiting with 0.
    #[must_use]
    pub fn on_term(mut self, script: &str) -> Self {
        script.clone_into(&mut self.on_term);
        self
    }

    /// Serves pages on port 8080, controlled by files.
    #[must_use]
    pub fn serves_pages(self) -> Self {
        self.does(PAGES)
    }

    /// Serves HTTP/2 without TLS on port 5000: health for gRPC.
    #[must_use]
    pub fn serves_grpc(self) -> Self {
        self.does(GRPC)
    }

    /// Has this field besides its own, in YAML's flow style.
    #[must_use]
    pub fn with(mut self, field: &str) -> Self {
        self.fields.push(field.to_owned());
        self
    }
}

/// An item of a list of containers.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beginning = BEGINNING.replace('@', &self.name).replace("term; $", &format!("term; {}", self.on_term));
        let script = format!("{beginning}{}{END}", self.first);
        // A string in JSON is one in YAML.
        let script = serde_json::Value::from(script);
        write!(f, "- {{name: {}, image: IMAGE, command: [bash, -c, {script}]", self.name)?;
        write!(f, ", volumeMounts: [{{name: ctl, mountPath: /ctl}}, {{name: kept, mountPath: /kept}}]")?;
        self.fields.iter().try_for_each(|field| write!(f, ", {field}"))?;
        write!(f, "}}")
    }
}

/// A manifest of a pod with these fields, which begin in the first column: `restartPolicy: Never\ncontainers:\n- ...`.
/// Its actors share `/ctl` with the test and `/kept`, an emptyDir, with each other.
pub fn manifest(name: &str, fields: &str) -> String {
    let fields: String = fields.lines().map(|line| format!("  {line}\n")).collect();
    let volumes = "[{name: ctl, hostPath: {path: CTL}}, {name: kept, emptyDir: {}}]";
    format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  volumes: {volumes}\n{fields}")
}
