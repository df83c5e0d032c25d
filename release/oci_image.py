"""Makes an OCI image of podwire for an architecture, without Docker and without a registry.

    oci_image.py WHEEL ARCHITECTURE OUTPUT

The root directory is made of Debian packages and of locked Python packages for that architecture, which are unpacked
and never run. `podwire image build` makes the image of it, so the machine may have another architecture.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from single_file import PYTHON, install

DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
PACKAGES = ("python3-minimal", f"libpython{PYTHON}-stdlib", "nftables", "busybox-static", "ca-certificates")
SUITE = "bookworm"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
HOME = "opt/podwire"
NOT_NEEDED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/lintian", "var/cache", "etc/perl")
CONTAINERFILE = f"""\
FROM scratch
COPY root/ /
ENV PATH=/{HOME}/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENTRYPOINT ["podwire"]
CMD ["--help"]
"""


def mirror() -> str:
    """Returns the mirror of Debian that this machine uses."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages"]
    sites = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    sites = [site for site in sites if site.rstrip("/").endswith("/debian")]
    if not sites:
        sys.exit("oci_image: the sources of apt have no mirror of Debian, from which the image takes its packages")
    return sites[0]


def unpack_packages(architecture: str, work: Path, root: Path) -> None:
    """Unpacks Debian packages and all that they depend on, by package lists of their own; checks signatures."""
    for directory in ("lists/partial", "cache/archives/partial", "debs"):
        (work / directory).mkdir(parents=True)
    (work / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {SUITE} main\n")
    (work / "status").touch()
    settings = {
        "APT::Architecture": DEBIAN[architecture],
        "APT::Architectures": DEBIAN[architecture],
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
    }
    apt = ["apt-get", "-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], check=True)
    plan = subprocess.run([*apt, "install", "--simulate", *PACKAGES], check=True, capture_output=True, text=True).stdout
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    subprocess.run([*apt, "download", *names], check=True, cwd=work / "debs")
    for package in sorted((work / "debs").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)


def complete(root: Path) -> None:
    """Adds what maintainer scripts would: busybox's shell, certificates, and a virtual environment for podwire."""
    for name in ("sh", "test", "sleep", "ls", "cat", "cp", "rm", "mkdir", "ip", "ps", "grep", "env"):
        link = root / "usr/bin" / name
        if not link.exists() and not (root / "bin" / name).exists():
            link.symlink_to("/bin/busybox")
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    (root / "etc/ssl/certs").mkdir(parents=True, exist_ok=True)
    (root / "etc/ssl/certs/ca-certificates.crt").write_text("".join(path.read_text() for path in certificates))
    (root / HOME / "bin").mkdir(parents=True, exist_ok=True)
    (root / HOME / "bin/python3").symlink_to(f"/usr/bin/python{PYTHON}")
    (root / HOME / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    script = root / HOME / "bin/podwire"
    script.write_text(f"#!/{HOME}/bin/python3\nimport sys\n\nfrom podwire.cli.entry import main\n\nsys.exit(main())\n")
    script.chmod(0o755)
    for name in NOT_NEEDED:
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "tmp").mkdir(exist_ok=True)


def main() -> None:
    wheel, architecture, output = sys.argv[1:]
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as directory:
        context, work = Path(directory) / "context", Path(directory) / "apt"
        root = context / "root"
        root.mkdir(parents=True)
        unpack_packages(architecture, work, root)
        install(Path(wheel), architecture, root / HOME / "lib" / f"python{PYTHON}" / "site-packages")
        complete(root)
        (context / "Containerfile").write_text(CONTAINERFILE)
        command = [Path(sys.executable).with_name("podwire"), "image", "build", context]
        subprocess.run(
            [
                *(*command, "--prefix", Path(directory) / "images", "--platform", f"linux/{DEBIAN[architecture]}"),
                *("-t", "podwire:latest", "-o", Path(output).absolute()),
            ],
            check=True,
        )


if __name__ == "__main__":
    main()
