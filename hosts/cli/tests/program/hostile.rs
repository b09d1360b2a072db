//! Libraries that do what they must not: each gets a clear error, and the program goes on to say
//! it.

use crate::common::{out, root};
use crate::{common, library};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What is wrong with a library before a part is made: compiler flags.
const TABLES: &[(&str, &[&str])] = &[
    ("wrong magic number", &["-DMAGIC=42"]),
    ("older interface", &["-DVERSION=0"]),
    ("newer interface", &["-DVERSION=(FL_VERSION+1)"]),
    ("table too short", &["-DSIZE=8"]),
    ("table too long", &["-DSIZE=4096"]),
    ("no describe", &["-DNO_DESCRIBE"]),
    ("no create", &["-DNO_CREATE"]),
    ("no call", &["-DNO_CALL"]),
    ("no drop", &["-DNO_DROP"]),
    ("no free", &["-DNO_FREE"]),
    ("no symbol", &["-DNO_SYMBOL"]),
    ("describe fails", &["-DDESCRIBE_FAILS"]),
    ("description is NULL", &["-DDESCRIBE_NULL"]),
    ("description of 2^40 bytes", &["-DDESCRIBE_HUGE"]),
    ("description is no JSON", &["-DJSON=\"{parts\""]),
    ("description is no UTF-8", &["-DJSON=\"\\xff\\xfe\""]),
    ("no parts", &["-DPARTS=\"\""]),
    ("1500 parts", &["-DMANY_PARTS"]),
    ("two parts of one name", &["-DPARTS=PART \",\" PART"]),
    ("name of a linked part", &["-DNAME=\"mean\""]),
    ("name with an escape", &["-DNAME=\"\\\\u001b[31mred\""]),
    ("doc with an escape", &["-DDOC=\"\\\\u001b[31mred\""]),
    ("unknown role", &["-DROLE=\"dictator\""]),
    ("a protocol", &["-DROLE=\"protocol\""]),
    (
        "unknown signature",
        &["-DSIGNATURE=\"gradients -> params\""],
    ),
    (
        "schema that is no schema",
        &["-DSETTING=\"{\\\"name\\\": \\\"a\\\", \\\"doc\\\": \\\"b\\\", \\\"schema\\\": 7}\""],
    ),
    (
        "setting called `use`",
        &["-DSETTING=\"{\\\"name\\\": \\\"use\\\", \\\"doc\\\": \\\"b\\\"}\""],
    ),
    ("1500 settings", &["-DMANY_SETTINGS"]),
    (
        "default out of range",
        &[
            "-DSETTING=\"{\\\"name\\\": \\\"a\\\", \\\"doc\\\": \\\"b\\\", \\\"schema\\\": {\\\"type\\\": \\\"number\\\", \\\"maximum\\\": 1, \\\"default\\\": 2}}\"",
        ],
    ),
    (
        "limit that is no number",
        &[
            "-DSETTING=\"{\\\"name\\\": \\\"a\\\", \\\"doc\\\": \\\"b\\\", \\\"schema\\\": {\\\"minimum\\\": \\\"0\\\"}}\"",
        ],
    ),
    (
        "setting without a doc",
        &["-DSETTING=\"{\\\"name\\\": \\\"a\\\"}\""],
    ),
];

/// What goes wrong in a part: the setting `mode`.
const CALLS: &[&str] = &[
    "create-fails",
    "create-nothing",
    "create-null",
    "create-twice",
    "create-same-twice",
    "create-endless",
    "about-no-json",
    "about-no-text",
    "about-unknown-claim",
    "about-draws",
    "endless-error",
    "error-not-utf8",
    "error-without-reason",
    "error-is-null",
    "error-with-escape",
    "unknown-operation",
    "says-it-panicked",
    "no-output",
    "nan",
    "wrong-shape",
    "wrong-name",
    "wrong-dtype",
    "unknown-dtype",
    "huge-shape",
    "4-GiB-untouched",
    "20000-tensors",
    "overflowing-shape",
    "hundred-dimensions",
    "no-shape",
    "name-not-utf8",
    "name-with-escape",
    "text-not-utf8",
    "twice",
    "gives-a-part",
    "gives-itself",
    "no-context",
    "draws",
];

/// The same in other roles: role, signature, input and modes.
const ROLES: &[(&str, &str, &str, &[&str])] = &[
    (
        "selector",
        "clients",
        r#"{"clients": [{"id": 0, "samples": 100}, {"id": 1, "samples": 50}, {"id": 2, "samples": 7}]}"#,
        &[
            "no-positions",
            "positions-as-floats",
            "descending",
            "same-twice",
            "beyond-the-pool",
        ],
    ),
    (
        "privacy",
        "params",
        r#"{"tensors": {"w": [1, 2]}}"#,
        &[
            "bound-shape",
            "bound-nan",
            "perturb-shape",
            "price-unknown",
            "price-infinite",
            "no-price",
        ],
    ),
    (
        "accountant",
        "",
        r#"{"events": [{"Laplace": {"sensitivity": 1, "scale": 2, "unit": "party"}}]}"#,
        &["guarantee-no-unit", "guarantee-below-0"],
    ),
];

/// What a library says of settings.
const CHECKS: &[(&str, &str)] = &[
    ("check: no JSON", "-DCHECK=\"{\""),
    ("check: neither nor", "-DCHECK=\"{}\""),
    (
        "check: an escape",
        "-DCHECK=\"{\\\"mistakes\\\": [{\\\"path\\\": [\\\"a\\\\u001b[2J\\\"], \\\"text\\\": \\\"red \\\\u001b[31m\\\"}]}\"",
    ),
    ("check: 1500000 steps deep", "-DCHECK_DEEP"),
];

/// Where the Rust library panics.
const PANICS: &[&str] = &["check", "create", "about", "aggregate", "chunk", "drop"];

const INPUT: &str = r#"{"messages": [{"from": 0, "tensors": {"w": [1, 2]}}, {"from": 1, "tensors": {"w": [3, 4]}}]}"#;

struct Table {
    dir: tempfile::TempDir,
    text: String,
    rows: usize,
}

impl Table {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("in.json"), INPUT).unwrap();
        Self {
            dir,
            text: String::new(),
            rows: 0,
        }
    }

    /// One row: the fault, the exit code, and the program's last line.
    /// The library is in the program's own process.
    fn row(&mut self, what: &str, args: &[&str], envs: &[(&str, &str)]) {
        let here = [args, &["--isolate=false"]].concat();
        let line = self.said(what, &here, envs);
        self.text += &line;
        self.rows += 1;
    }

    /// As [`Table::row`], of a library that was loaded: one in a process of its own must come to
    /// the same.
    fn called(&mut self, what: &str, args: &[&str]) {
        self.row(what, args, &[]);
        let apart = self.said(what, &[args, &["--isolate"]].concat(), &[]);
        assert!(self.text.ends_with(&apart), "with --isolate: {apart}");
    }

    fn said(&self, what: &str, args: &[&str], envs: &[(&str, &str)]) -> String {
        let out = crate::common::program()
            .args(args)
            .envs(envs.iter().copied())
            .env("RUST_BACKTRACE", "0")
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        let said = if out.status.success() {
            &out.stdout
        } else {
            &out.stderr
        };
        let said = String::from_utf8_lossy(said);
        // a panic in a library also prints a line of its own
        let said = said
            .lines()
            .filter(|l| !l.is_empty() && !l.starts_with("thread '"));
        let said = said.filter(|l| !l.starts_with("note: run with") && !l.starts_with("in "));
        let said: Vec<_> = said.collect();
        let code = out.status.code();
        assert!(
            code.is_some(),
            "{what}: the program was ended: {:?}, {said:?}",
            out.status
        );
        let line: String = said.join(" | ").chars().take(230).collect();
        let here = library::beside("fl_hostile").display().to_string();
        let line = line.replace(&here, "libfl_hostile.so");
        format!("{what:<26} {}  {line}\n", code.unwrap())
    }

    fn list(&mut self, what: &str, file: &str) {
        self.row(what, &["list", "--plugin", file], &[]);
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    fn compile(&self, out: &str, flags: &[&str]) {
        let source = common::root().join("hosts/cli/tests/program/hostile.c");
        let quiet = [
            &["-O0", "-Wno-unused-function", "-Wno-unused-const-variable"],
            flags,
        ]
        .concat();
        library::compile(&source, &self.dir.path().join(out), &quiet);
    }

    /// What is wrong with a file.
    fn files(&mut self) {
        self.compile("fine.so", &[]);
        let fine = fs::read(self.dir.path().join("fine.so")).unwrap();
        self.put("text.so", b"hello\n");
        self.put("empty.so", b"");
        self.put("cut.so", &fine[..fine.len() / 2]);
        self.put("short.so", &fine[..20]);
        let patched = |at: usize, byte: u8| {
            let mut other = fine.clone();
            other[at] = byte;
            other
        };
        self.put(
            "arm.so",
            &patched(18, if fine[18] == 183 { 62 } else { 183 }),
        );
        self.put("narrow.so", &patched(4, 1));
        self.put("program.so", &patched(16, 2));
        // the loader reads the header of the program table next: no library of this system begins
        // so
        self.put("odd.so", &patched(56, 0));
        fs::create_dir(self.dir.path().join("folder.so")).unwrap();
        self.put("open.so", &fine);
        let all = |mode| fs::Permissions::from_mode(mode);
        fs::set_permissions(self.dir.path().join("open.so"), all(0o666)).unwrap();
        let shared = self.dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        self.put("shared/fine.so", &fine);
        fs::set_permissions(&shared, all(0o777)).unwrap();
        let pipe = Command::new("mkfifo")
            .arg(self.dir.path().join("pipe.so"))
            .status();
        for (what, file) in [
            ("no such file", "nowhere.so"),
            ("a directory", "folder.so"),
            ("a text file", "text.so"),
            ("an empty file", "empty.so"),
            ("cut in half", "cut.so"),
            ("only 20 bytes", "short.so"),
            ("for another machine", "arm.so"),
            ("for 32 bits", "narrow.so"),
            ("not a library", "program.so"),
            ("without program headers", "odd.so"),
            ("everybody may write to it", "open.so"),
            ("or to its folder", "shared/fine.so"),
        ] {
            self.list(what, file);
        }
        if pipe.is_ok_and(|s| s.success()) {
            self.list("a pipe", "pipe.so");
        }
        let spec = |sha: &str| {
            format!(
                "plugins: [{{path: fine.so, sha256: {sha}}}]\nname: x\ndata: {{set: blobs}}\nprotocol: {{use: fedavg}}\n\
                 parts: {{model: {{use: linear}}, aggregator: {{use: hostile, mode: 3}}}}\n"
            )
        };
        self.put("hash.yaml", spec(&"0".repeat(64)).as_bytes());
        self.row("another hash", &["check", "hash.yaml"], &[]);
        self.put("nohash.yaml", spec("12").as_bytes());
        self.row("no hash, wrong setting", &["check", "nohash.yaml"], &[]);
    }
}

/// Numbers that depend on the compiler or the machine.
fn steady(text: &str) -> String {
    let mut out = Vec::new();
    for line in text.lines() {
        let line = match (
            line.find("its sha256 is "),
            line.find(", and the pinned one is"),
        ) {
            (Some(a), Some(b)) => format!("{}its sha256 is [..]{}", &line[..a], &line[b..]),
            _ => line.to_string(),
        };
        let line = match line.find("it has ").filter(|_| line.contains("cut short")) {
            Some(at) => format!("{}it has [..]", &line[..at]),
            None => line,
        };
        out.push(line);
    }
    out.join("\n").replace("/tmp/", "/")
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn exact_every_hostile_library_gets_a_clear_error() {
    if !library::cc() {
        return;
    }
    let mut table = Table::new();
    table.files();
    for (what, flags) in TABLES {
        table.compile("lib.so", flags);
        table.called(what, &["list", "--plugin", "lib.so"]);
        fs::remove_file(path(table.dir.path(), "lib.so")).unwrap();
    }
    for mode in CALLS {
        let settings = format!("{{mode: {mode}}}");
        let part = ["try", "aggregator", "hostile", "--plugin", "fine.so"];
        let args = [&part[..], &["--input", "in.json", "--settings", &settings]].concat();
        table.called(mode, &args);
    }
    for (role, signature, input, modes) in ROLES {
        let flags = [
            format!("-DROLE=\"{role}\""),
            format!("-DSIGNATURE=\"{signature}\""),
        ];
        table.compile(&format!("{role}.so"), &[&flags[0], &flags[1]]);
        table.put(&format!("{role}.json"), input.as_bytes());
        for mode in *modes {
            let (lib, input) = (format!("{role}.so"), format!("{role}.json"));
            let settings = format!("{{mode: {mode}}}");
            let part = ["try", role, "hostile", "--plugin", &lib, "--input", &input];
            table.called(mode, &[&part[..], &["--settings", &settings]].concat());
        }
    }
    for (what, flag) in CHECKS {
        table.compile("check.so", &[flag]);
        let part = ["try", "aggregator", "hostile", "--plugin", "check.so"];
        table.called(what, &[&part[..], &["--input", "in.json"]].concat());
        fs::remove_file(path(table.dir.path(), "check.so")).unwrap();
    }
    let rust = library::beside("fl_hostile").display().to_string();
    let what = "panic in describe";
    table.row(
        what,
        &["list", "--plugin", &rust],
        &[("FL_HOSTILE", "describe")],
    );
    for place in PANICS {
        let settings = format!("{{place: {place}}}");
        let part = ["try", "aggregator", "panics", "--plugin", &rust];
        let args = [&part[..], &["--input", "in.json", "--settings", &settings]].concat();
        table.called(&format!("panic in {place}"), &args);
    }
    eprintln!("{}", table.text);
    assert!(table.rows >= 90, "{}", table.rows);
    for line in table.text.lines() {
        assert!(line.len() > 30, "nothing was said: {line}");
    }
    insta::assert_snapshot!(steady(&table.text));
}

/// What is guaranteed by a loaded part is what its library says, and nothing where it drew no noise
/// at all.
#[test]
fn a_guarantee_of_a_loaded_part_is_its_librarys_claim() {
    let dir = tempfile::tempdir().unwrap();
    let spec = root().join("specs/quick/fedavg.yaml").display().to_string();
    let run = |to: &str, library: &std::path::Path, privacy: &str, more: &[&str]| {
        let library = library.display().to_string();
        let privacy = format!("parts.privacy={privacy}");
        let others = "parts.accountant={use: basic}";
        // so that no other data is disclosed
        let alike = "parts.aggregator.weigh=uniform";
        let set = ["--set", &privacy, "--set", others, "--set", alike];
        let run = ["run", &spec, "--out", to, "--plugin", &library];
        let system = ["--set", "noise=system"];
        let text = out(dir.path(), &[&run[..], &set, &system, more].concat());
        let page = std::fs::read_to_string(dir.path().join(to).join("report.md")).unwrap();
        let (_, told) = page.split_once("## Privacy").unwrap();
        let told: String = told.lines().filter(|l| l.starts_with("* ")).collect();
        assert!(!text.contains("from the operating system"), "{text}");
        told
    };
    let hostile = library::beside("fl_hostile");
    let honest = library::beside("fl_plugin_example_dynamic");
    for (how, more) in [("here", &["--isolate=false"][..]), ("apart", &[])] {
        let told = run(&format!("silent-{how}"), &hostile, "{use: lies}", more);
        let nothing = "nothing: parts.privacy claims Laplace noise of scale 1 for an L1 \
                       sensitivity of 0.001, and drew no noise";
        assert_eq!(told.matches(nothing).count(), 3, "{told}");
        // what is drawn may go nowhere, which the program cannot see
        let lies = "{use: lies, draws: true}";
        let told = run(&format!("lies-{how}"), &hostile, lies, more);
        let claimed = format!("data-independent; as claimed by {}", hostile.display());
        assert_eq!(told.matches(&claimed).count(), 3, "{told}");
        let laplace = "{use: laplace-params, clip: 1.0, scale: 100.0}";
        let told = run(&format!("honest-{how}"), &honest, laplace, more);
        let claimed = format!("data-independent; as claimed by {}", honest.display());
        assert_eq!(told.matches(&claimed).count(), 3, "{told}");
    }
}

const PATE: &str = "
name: pate
seed: 1
data: { set: blobs, clients: 5, public: { from: { share: 0.2 } } }
protocol: { use: pate, teachers: 10, teacher: {epochs: 1}, student: {epochs: 1} }
parts: { teacher: {use: linear}, student: {use: linear}, vote: {use: majority-vote},
  privacy: {use: laplace-votes, gamma: 0.5, data-dependent: false}, accountant: {use: pate-moments} }
";

/// How much a vote weighs is the word of the part that counts it, in whatever language it is
/// written: it may count each a thousand times.
#[test]
fn a_guarantee_on_votes_that_a_library_counts_is_its_claim() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("pate.yaml"), PATE).unwrap();
    let fedkt = common::quick("fedkt-l1");
    let example = "parts.accountant.unit=example";
    let cases = [
        (&fedkt[..], "tier2", &[][..]),
        (&fedkt, "tier1", &["protocol.noise=party", example][..]),
        ("pate.yaml", "vote", &[][..]),
    ];
    let rust = library::beside("fl_hostile");
    let mut counters = vec![(rust, "{use: loud-vote, times: 1000}")];
    if library::cc() {
        let source = root().join("hosts/cli/tests/program/vote_counter.c");
        let c = dir.path().join("vote_counter.so");
        library::compile(&source, &c, &[]);
        counters.push((c, "{use: c-loud-vote}"));
    }
    let told = |name: &str, spec: &str, set: &[&str], more: &[&str]| {
        let mut args = vec![
            "run",
            spec,
            "--out",
            name,
            "--json",
            "--set",
            "noise=system",
        ];
        set.iter().for_each(|set| args.extend(["--set", set]));
        args.extend(more);
        let all = common::json(dir.path(), &args)["privacy"].clone();
        let all = all.as_object().unwrap().values().cloned();
        let holds: Vec<_> = all.filter(|told| told["epsilon"].is_f64()).collect();
        assert!(!holds.is_empty(), "{name}: something is guaranteed");
        holds
    };
    for (spec, slot, set) in cases {
        for linked in told(&format!("{slot}-linked"), spec, set, &[]) {
            assert!(linked["claimed_by"].is_null(), "{slot}: {linked}");
        }
        for (at, (library, part)) in counters.iter().enumerate() {
            let (library, part) = (
                library.display().to_string(),
                format!("parts.{slot}={part}"),
            );
            let set = [set, &[&part[..]]].concat();
            let plugin = ["--plugin", &library];
            for holds in told(&format!("{slot}-{at}"), spec, &set, &plugin) {
                assert_eq!(holds["claimed_by"], serde_json::json!([library]), "{slot}");
            }
            let report = dir.path().join(format!("{slot}-{at}/report.md"));
            let report = fs::read_to_string(report).unwrap();
            assert!(
                report.contains(&format!("as claimed by {library}")),
                "{report}"
            );
        }
    }
}
