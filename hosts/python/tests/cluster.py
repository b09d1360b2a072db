"""A SuperLink of Flower on loopback, for tests and measurements: with TLS and SuperNodes that have
keys, or with Flower's simulation."""

import datetime
import ipaddress
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

BIN = Path(sys.executable).parent
PRIVATE = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def authority(folder: Path) -> None:
    """`ca.crt`, and `server.crt` with `server.key` for this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    name = lambda text: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])  # noqa: E731
    days = lambda n: datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=n)  # noqa: E731
    issuer = ec.generate_private_key(ec.SECP256R1())

    def certificate(subject, key, *extensions):
        made = x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name("test-ca")).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(days(-1)).not_valid_after(days(2))
        for extension, critical in extensions:
            made = made.add_extension(extension, critical)
        return made.sign(issuer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / "ca.crt").write_bytes(certificate("test-ca", issuer, (x509.BasicConstraints(True, None), True)))
    (folder / "server.crt").write_bytes(certificate("localhost", key, (x509.SubjectAlternativeName(here), False)))
    (folder / "server.key").write_bytes(key.private_bytes(*PRIVATE))


class Cluster:
    """A SuperLink, and the nodes that were begun; `with` ends all of them. `simulated` is how many
    nodes Flower simulates, on one processor each, of `processors` at most; there are no others
    then."""

    def __init__(self, folder: Path, simulated: int = 0, processors: int | None = None):
        self.folder, self.port, self.running, self.simulated, self.processors = folder, free_port(), {}, simulated, processors
        self.env = os.environ | {
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # 15 by default: on a busy machine its workers never start
            "FL_NODE_HOME": str(folder / "home"),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }

    def __enter__(self):
        tls = self.folder / "tls"
        (self.folder / "flwr").mkdir(parents=True)
        if self.simulated:
            trust, how = "insecure = true", ["--insecure", "--simulation", "--control-api-address", f"127.0.0.1:{free_port()}"]
        else:
            authority(tls)
            trust = f'root-certificates = "{tls / "ca.crt"}"'
            how = ["--ssl-ca-certfile", tls / "ca.crt", "--ssl-certfile", tls / "server.crt", "--ssl-keyfile", tls / "server.key"]
            how.append("--enable-supernode-auth")
        here = f'address = "127.0.0.1:{self.port}"\n{trust}\n'
        text = f'[superlink]\ndefault = "here"\n[superlink.here]\n{here}[superlink.local]\n{here}'
        (self.folder / "flwr/config.toml").write_text(text)
        self.begin(
            "superlink", BIN / "flower-superlink", "--host", "127.0.0.1", "--port", self.port, *how,
            "--isolation", "subprocess", "--disable-runtime-dependency-installation",
        )  # fmt: skip
        self.until(lambda: socket.create_connection(("127.0.0.1", self.port), 1).close() or True, "the SuperLink to listen")
        return self

    def __exit__(self, *_):
        for name in list(self.running)[::-1]:
            self.kill(name)

    def begin(self, name, *args):
        with (self.folder / f"{name}.log").open("a") as log:
            # a group of its own, so that what it begins ends with it
            self.running[name] = subprocess.Popen([*map(str, args)], stdout=log, stderr=log, cwd=self.folder, env=self.env, start_new_session=True)

    def kill(self, name):
        process = self.running.pop(name)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def log(self, name) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def until(self, done, what, seconds=600):
        """Waits for something that must come; the limit only ends a test that would hang."""
        end = time.monotonic() + seconds
        while True:
            try:
                if found := done():
                    return found
            except OSError:
                pass
            assert time.monotonic() < end, f"waited {seconds} s for {what}:\n" + "\n".join(f"== {n}\n{self.log(n)[-2000:]}" for n in self.running)
            time.sleep(0.1)

    def key(self, name) -> Path:
        """A node's key, that of before if it has one."""
        path = self.folder / "keys" / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            key = ec.generate_private_key(ec.SECP384R1())
            openssh = serialization.PrivateFormat.OpenSSH
            path.write_bytes(key.private_bytes(serialization.Encoding.PEM, openssh, serialization.NoEncryption()))
            public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
            path.with_suffix(".pub").write_bytes(public)
        return path

    def flwr(self, *args, check=True) -> str:
        done = subprocess.run([BIN / "flwr", *map(str, args)], env=self.env, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout + done.stderr

    def register(self, name):
        self.flwr("supernode", "register", self.key(name).with_suffix(".pub"), "here")

    def node(self, name, config, ca=None, again=False):
        """Begins a SuperNode with this configuration and the key of this name; `again`: as often as
        it ends."""
        keeper = ["sh", "-c", 'while :; do "$@"; sleep 1; done', "keeper"] if again else []
        self.begin(
            name, *keeper, BIN / "flower-supernode", "--superlink", f"127.0.0.1:{self.port}", "--root-certificates", ca or self.folder / "tls/ca.crt",
            "--auth-supernode-private-key", self.key(name), "--port", free_port(),
            "--node-config", " ".join(f"{key}={json.dumps(value)}" for key, value in config.items()),
        )  # fmt: skip

    def run(self, app: Path, **config) -> "Running":
        """`flwr run`, with values of the run's configuration."""
        return Running(self, app, config)


class Busy(Exception):
    """The machine is too busy for Flower's simulation."""


class Running:
    """A run of an app, and what it prints."""

    def __init__(self, cluster: Cluster, app: Path, config):
        told = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in config.items())
        args = [BIN / "flwr", "run", app, "here", "--stream", *(["--run-config", told] if told else [])]
        if cluster.simulated:
            most = f" init-args-num-cpus={cluster.processors}" if cluster.processors else ""
            args += ["--federation-config", f"num-supernodes={cluster.simulated} client-resources-num-cpus=1{most}"]
        self.cluster, self.lines = cluster, []
        self.process = subprocess.Popen(args, env=cluster.env, cwd=cluster.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def until(self, pattern: str) -> re.Match:
        """Reads on until a line has this in it."""
        for line in self.process.stdout:
            self.lines.append(line)
            if "node timed out during startup" in line:
                raise Busy("Ray, which Flower simulates with, did not start: this machine is too busy")
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no line has {pattern!r} in it:\n{''.join(self.lines)}\n{self.cluster.log('superlink')[-3000:]}")

    def outcome(self) -> dict:
        found = json.loads(self.until(r"fl: outcome (\{.*\})")[1])
        self.process.stdout.read()
        self.process.wait()
        return found
