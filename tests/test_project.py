"""What holds for the project as a whole: one version, pinned dependencies, one set of checks, honest documents."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import mcp_workbench
from mcp_workbench.cli.usage import COMMANDS
from mcp_workbench.engine.config.fixed_settings import FIXED
from mcp_workbench.engine.config.load import load
from mcp_workbench.setup.clients.table import clients

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parent.parent
# A source distribution has no git; folders that tools fill are not part of the project in either case.
GENERATED = {".git", ".venv", "venv", "dist", "build", "node_modules", "__pycache__", ".hypothesis"}

# A pin says which file, never where from: that is the matter of whoever installs.
REGISTRY_ADDRESSES = (
    r"pypi\.org/simple",
    r"files\.pythonhosted\.org",
    r"registry\.(npmjs\.org|yarnpkg\.com)",
    r"--(extra-)?index-url[ =][^-\s]",
    r'(registry|source|resolved|index|url)"? ?[:=] ?"?(https?|file)://[^ "]*(simple|registry|/packages/|\.tgz|\.whl)',
)


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def project() -> dict[str, Any]:
    return tomllib.loads(text("pyproject.toml"))


@cache
def tracked_files() -> tuple[Path, ...]:
    """What is in git or would be after `git add`; without git, everything that no tool has generated."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        found = [ROOT / name for name in listed.split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not GENERATED.intersection(path.relative_to(ROOT).parts)]
    return tuple(path for path in found if path.is_file())


def pins(path: str) -> dict[str, tuple[str, int]]:
    """Package to version and number of hashes, for a constraints file."""
    found: dict[str, tuple[str, int]] = {}
    for entry in re.split(r"\n(?=[a-z0-9#])", text(path)):
        pinned = re.match(r"([a-z0-9-]+)==(\S+) ", entry)
        if pinned:
            found[pinned[1]] = (pinned[2], len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry)))
    return found


@pytest.mark.requirement("project.release")
def test_the_version_stands_in_one_place() -> None:
    version = mcp_workbench.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert "version" in project()["project"]["dynamic"]
    assert project()["tool"]["hatch"]["version"]["path"] == "src/mcp_workbench/__init__.py"
    here = [path for path in tracked_files() if path.suffix in (".py", ".yml") and "tests" not in path.parts]
    here += [ROOT / "pyproject.toml", ROOT / "Makefile"]
    whole = re.compile(rf"(?<![\d.]){re.escape(version)}(?![\d.])")
    places = [str(path.relative_to(ROOT)) for path in here if whole.search(path.read_text(encoding="utf-8"))]
    assert places == ["src/mcp_workbench/__init__.py"]


@pytest.mark.requirement("project.release")
def test_changelog_begins_with_unreleased_and_dates_this_version() -> None:
    first, second, *_ = re.findall(r"^## .+$", text("CHANGELOG.md"), re.MULTILINE)
    assert first == "## [Unreleased]"
    assert re.fullmatch(rf"## \[{re.escape(mcp_workbench.__version__)}\] - \d{{4}}-\d\d-\d\d", second)


def test_pull_requests_are_asked_for_every_principle() -> None:
    principles = re.findall(r"^## ([IVX]+\. .+)$", text("docs/internals/principles.md"), re.MULTILINE)
    template = text(".github/PULL_REQUEST_TEMPLATE.md")
    assert [number.split(".")[0] for number in principles] == ["I", "II", "III", "IV", "V", "VI", "VII"]
    assert [name for name in principles if f"- [ ] {name}: " not in template] == []
    for name in ("bug", "idea", "principle"):
        issue = text(f".github/ISSUE_TEMPLATE/{name}.md")
        assert issue.startswith("---\nname: ") and "principle" in issue.partition("---\n\n")[2]


def test_the_principles_name_their_version_and_dates_as_their_table_does() -> None:
    page = text("docs/internals/principles.md")
    said = re.search(r"Version of this page: \*\*([\d.]+)\*\*\. Ratified (\S+), last amended ([\d-]+)", page)
    rows = re.findall(r"^\| ([\d.]+) \| (\d{4}-\d\d-\d\d) \|", page, re.MULTILINE)
    assert said is not None and rows[0] == ("1.0.0", said[2]) and rows[-1] == (said[1], said[3])


@pytest.mark.requirement("project.incubation")
def test_the_package_description_says_incubating() -> None:
    assert re.search("incubating|pre-1.0", project()["project"]["description"], re.IGNORECASE)


@pytest.mark.requirement("project.documentation")
@pytest.mark.parametrize("name", ["`WORKBENCH_CONFIG`", "`toolFilters`", "`transport`"])
def test_readme_names_the_additions_of_the_configuration(name: str) -> None:
    assert any(line.startswith(f"- {name}") for line in text("README.md").splitlines())


def test_the_readme_has_a_versioning_policy() -> None:
    assert "\n## Versioning policy\n" in text("README.md")


@pytest.mark.requirement("project.incubation")
def test_the_readme_opens_with_the_incubation_notice() -> None:
    beginning = "\n".join(text("README.md").splitlines()[:30]).lower()
    assert "incubat" in beginning
    assert "breaking change" in beginning


def test_no_file_names_the_download_address_of_a_package_registry() -> None:
    assert tracked_files()
    found = []
    for path in tracked_files():
        content = path.read_bytes().decode("utf-8", errors="replace")
        found += [
            f"{path.relative_to(ROOT)}: {hit[0]}" for one in REGISTRY_ADDRESSES for hit in re.finditer(one, content)
        ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("group", "files"),
    [
        ("build", ["constraints.txt"]),
        ("runtime", ["constraints.txt"]),
        ("dev", ["constraints.txt", "constraints-dev.txt"]),
    ],
)
def test_every_dependency_is_pinned_within_its_range(group: str, files: list[str]) -> None:
    asked: dict[str, list[str]] = {
        "build": project()["build-system"]["requires"],
        "runtime": project()["project"]["dependencies"],
        "dev": project()["project"]["optional-dependencies"]["dev"],
    }
    pinned = {name: version for file in files for name, (version, _) in pins(file).items()}
    for requirement in map(Requirement, asked[group]):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is in none of {files}: run `make constraints`"
        assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}"


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-dev.txt", "constraints-release.txt"])
def test_constraints_hold_pins_and_hashes_and_nothing_else(file: str) -> None:
    form = re.compile(r"#.*|[a-z0-9-]+==\S+ (?:; [a-z_]+ (?:>=|<) '[0-9.]+' )?\\|    --hash=sha256:[0-9a-f]{64}( \\)?")
    assert [line for line in text(file).splitlines() if not form.fullmatch(line)] == []
    assert pins(file)
    assert [name for name, (_, hashes) in pins(file).items() if not hashes] == []


def test_the_two_constraints_files_do_not_overlap() -> None:
    assert pins("constraints.txt").keys() & pins("constraints-dev.txt").keys() == set()


def stand_in(folder: Path, name: str, script: str) -> None:
    """An executable that takes the place of a real one."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run_ci(folder: Path, make: str, apt_get: str = "exit 0") -> tuple[int, list[str]]:
    """`.ci/run` with a `make` that records how it was called: its exit status, and the targets in order.

    It finds no program but these: nothing is installed on the machine of whoever runs the tests as root."""
    record = folder / "calls"
    stand_in(folder, "make", f'echo "$1" >> "{record}"\n{make}')
    stand_in(folder, "apt-get", apt_get)
    stand_in(folder, "id", "echo 0")
    for name in ("bash", "dirname", "env"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(str(shutil.which(name)))
    environment = {**os.environ, "PATH": str(folder)}
    done = subprocess.run(["bash", str(ROOT / ".ci" / "run")], env=environment, capture_output=True, timeout=60)
    return done.returncode, record.read_text().split()


@pytest.mark.requirement("project.types")
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_ci_runs_linters_types_and_tests_and_stops_at_the_first_that_fails(tmp_path: Path) -> None:
    checks = ["dev", "lint", "format-check", "types", "docs", "test", "test-external", "coverage", "other-pythons"]
    assert run_ci(tmp_path, "exit 0") == (0, checks)
    (tmp_path / "calls").unlink()
    status, called = run_ci(tmp_path, '[ "$1" != types ]')
    assert status != 0
    assert called[-1] == "types"


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_program_that_cannot_be_installed_costs_ci_no_other(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    status, _ = run_ci(tmp_path, "exit 0", f'echo "$*" >> "{tried}"; case "$*" in *chromium*) exit 100;; esac')
    assert status == 0
    installed = {word for line in tried.read_text().splitlines() if "chromium" not in line for word in line.split()}
    assert {"haproxy", "redis-server", "bubblewrap", "podman"} <= installed


@pytest.mark.parametrize("workflow", ["ci.yml", "release.yml"])
@pytest.mark.requirement("project.types")
def test_workflows_run_the_ci_script(workflow: str) -> None:
    steps = re.findall(r"^ +- run: (.*)$", text(f".github/workflows/{workflow}"), re.MULTILINE)
    assert "bash .ci/run" in steps


@pytest.mark.requirement("project.release")
def test_the_release_is_checked_and_tested_before_anything_is_published() -> None:
    workflow = text(".github/workflows/release.yml")
    order = ["scripts/check_release.py", "bash .ci/run", "make build", "uv publish", "gh release create"]
    found = [workflow.index(step) for step in order]
    assert found == sorted(found)
    assert "--prerelease" in workflow, "releases before 1.0.0 are marked"
    assert re.search(r"publish:\n.*\n +needs: \[verify, build, try, attest\]\n", workflow)


@pytest.mark.requirement("project.release")
@pytest.mark.parametrize("workflow", ["ci.yml", "release.yml"])
def test_actions_are_pinned_by_commit_with_their_version_beside_it(workflow: str) -> None:
    uses = re.findall(r"uses: (.*)$", text(f".github/workflows/{workflow}"), re.MULTILINE)
    assert uses
    assert [each for each in uses if not re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


def jobs(workflow: str) -> dict[str, list[str]]:
    """Of each job its steps, as text."""
    body = text(f".github/workflows/{workflow}").partition("\njobs:\n")[2]
    found = re.split(r"^  ([a-z]+):\n", body, flags=re.MULTILINE)[1:]
    steps = {name: job.partition("    steps:\n")[2] for name, job in zip(found[::2], found[1::2], strict=True)}
    return {name: re.split(r"^(?=      - )", block, flags=re.MULTILINE)[1:] for name, block in steps.items()}


@pytest.mark.requirement("project.release")
def test_nothing_unpinned_runs_between_the_build_and_the_upload() -> None:
    release = jobs("release.yml")
    build, publish = release["build"], release["publish"]
    built = next(number for number, step in enumerate(build) if "make build" in step)
    after = [step for step in build[built + 1 :] if "sha256sum" not in step]
    assert len(after) == 1 and "actions/upload-artifact@" in after[0]
    for name, steps in release.items():
        for step in steps:
            assert "npm " not in step and "npx " not in step and "curl " not in step, (name, step)
            if "pip install" in step:
                # By hash; or, without an index, the wheel that was just built.
                for line in re.findall(r"pip install.*", step):
                    assert "--require-hashes" in line or "--no-deps --no-index dist/" in line, (name, line)
    # Whoever holds the token to publish runs the uploader and nothing that comes with the project.
    commands = [
        line.strip() for step in publish for line in step.splitlines() if re.search(r"python|make|bash|uv ", line)
    ]
    assert [
        line for line in commands if not re.search(r"^(- run: )?(python3 -m venv uploader|uploader/bin/)", line)
    ] == []
    assert holders("id-token: write") == {"publish", "attest"}


def holders(permission: str) -> set[str]:
    """The jobs of the release that have a permission."""
    body = text(".github/workflows/release.yml").partition("\njobs:\n")[2]
    found = re.split(r"^  ([a-z]+):\n", body, flags=re.MULTILINE)[1:]
    return {name for name, job in zip(found[::2], found[1::2], strict=True) if permission in job}


@pytest.mark.requirement("project.release")
def test_release_is_signed_with_provenance_and_bill_of_materials() -> None:
    steps = jobs("release.yml")["attest"]
    signed = [step for step in steps if "actions/attest@" in step]
    assert ["subject-path: dist/*" in step for step in signed] == [True, True]
    assert ["sbom-path: mcp-workbench.cdx.json" in step for step in signed] == [False, True]
    compared = next(number for number, step in enumerate(steps) if "sha256sum --check --strict" in step)
    assert compared < steps.index(signed[0])
    # Whoever can sign runs nothing that comes with the project.
    assert not any(re.search(r"checkout|make |python|bash |pip ", step) for step in steps)
    assert holders("attestations: write") == {"attest"}
    assert "dist/* mcp-workbench.cdx.json" in jobs("release.yml")["announce"][-1]


@pytest.mark.requirement("project.release")
def test_uploaded_files_are_compared_with_built_ones() -> None:
    for job in ("publish", "announce"):
        steps = jobs("release.yml")[job]
        compared = next(number for number, step in enumerate(steps) if "sha256sum --check --strict" in step)
        fetched = max(number for number, step in enumerate(steps) if "name: dist" in step)
        used = next(
            number for number, step in enumerate(steps) if re.search("publish|gh release", step.partition("with")[0])
        )
        assert fetched < compared < used


def test_ci_covers_every_python_that_the_package_promises() -> None:
    classifiers: list[str] = project()["project"]["classifiers"]
    promised = [found[1] for each in classifiers if (found := re.fullmatch(r".*:: Python :: (3\.\d+)", each))]
    matrix = re.search(r"python: \[(.*)\]", text(".github/workflows/ci.yml"))
    assert matrix is not None
    assert json.loads(f"[{matrix[1]}]") == promised
    assert project()["project"]["requires-python"] == f">={promised[0]}"


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_says_so_when_python_is_too_old(tmp_path: Path) -> None:
    stand_in(tmp_path, "old-python", 'if [ "$1" = --version ]; then echo "Python 3.10.13"; else exit 1; fi')
    command = ["make", "demo", f"PYTHON={tmp_path}/old-python", f"VENV={tmp_path}/venv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr
    assert "is Python 3.10.13." in done.stderr
    assert not (tmp_path / "venv").exists()


def test_the_guide_for_contributors_names_every_package() -> None:
    guide = text("CLAUDE.md")
    package = ROOT / "src" / "mcp_workbench"
    packages = {path.name for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    missing = [name for name in packages if f"`{name}/`" not in guide] + [
        file for file in files if f"`{file}`" not in guide
    ]
    assert not missing, f"CLAUDE.md does not mention {sorted(missing)}"


def test_the_guide_for_contributors_names_files_that_exist() -> None:
    named = re.findall(
        r"`((?:app|cli|cluster|engine|programs|seeing|setup|sharing|signin|team|tests|scripts)/[\w/.]+)`",
        text("CLAUDE.md"),
    )
    assert len(named) > 25
    places = [f"{base}/{{}}{ending}" for base in (ROOT, ROOT / "src/mcp_workbench") for ending in ("", ".py")]
    assert [path for path in named if not any(Path(place.format(path)).exists() for place in places)] == []


def test_make_help_names_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (.*)$", text("Makefile"), re.MULTILINE)[0].split()
    shown = "\n".join(re.findall(r"^\t@echo '(.*)'$", text("Makefile"), re.MULTILINE))
    # What is only a part of `make check` is named there.
    named = {*re.findall(r"^make ([a-z-]+)", shown, re.MULTILINE), "help", "format-check"}
    assert [target for target in targets if target not in named] == []


def test_the_guide_for_contributors_names_every_target_of_make() -> None:
    targets = re.findall(r"^\t@echo 'make ([a-z-]+)", text("Makefile"), re.MULTILINE)
    assert {"test", "soak", "conformance"} <= set(targets)
    commands = text("CLAUDE.md").partition("## Commands")[2].partition("\n## ")[0]
    missing = [target for target in targets if not re.search(rf"(?<![\w-]){target}(?![\w-])", commands)]
    assert not missing, f"CLAUDE.md does not mention {missing}"


def test_the_readme_is_short_and_begins_with_the_two_commands_of_a_fresh_clone() -> None:
    readme = text("README.md")
    assert len(readme.splitlines()) <= 160
    first = readme.partition("```sh\n")[2].partition("```")[0]
    assert [line.split()[:2] for line in first.splitlines()] == [["make", "demo"], ["make", "test"]]
    links = re.findall(r"\]\(([^)]+)\)", readme.partition("\n## Commands and documents\n")[2].partition("\n## ")[0])
    assert len(links) == 8 and links[-1] == "docs/README.md"


def test_the_readme_counts_the_clients() -> None:
    readme = text("README.md")
    known = [not client.import_only for client in clients().values()]
    assert f"[{len(known)} clients](docs/start/clients.md)" in readme
    assert f"`install` knows {sum(known)} of them" in readme


def test_the_list_of_documents_leads_to_every_document() -> None:
    listed = text("docs/README.md")
    documents = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))
    assert "guides/team.md" in documents
    assert [name for name in documents if name != "README.md" and f"({name})" not in listed] == []


@pytest.mark.requirement("project.manual-testing")
def test_the_manual_test_configuration_loads_and_uses_only_servers_of_the_package() -> None:
    config = load(str(ROOT / "workbench-config.test.json"), {})
    servers = [server for toolbox in config.toolboxes.values() for server in toolbox.servers.values()]
    assert len(config.toolboxes) == 2
    assert len({server.name for server in servers}) < len(servers), "no server stands in both toolboxes"
    for server in servers:
        assert server.args[:1] == ("-m",), server.args
        assert server.args[1].startswith("mcp_workbench.cli.demo."), server.args
        module = ROOT / "src" / Path(*server.args[1].split("."))
        assert module.with_suffix(".py").exists(), server.args
    assert "workbench-config.test.json" in text("docs/internals/manual-testing.md")


def test_every_file_that_documents_point_to_exists() -> None:
    documents = [path for path in tracked_files() if path.suffix == ".md"]
    assert documents
    broken = []
    for document in documents:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
            if "://" not in target and not target.startswith("mailto:") and not (document.parent / target).exists():
                broken.append(f"{document.relative_to(ROOT)}: {target}")
    assert not broken, "\n".join(broken)


def test_security_policy_covers_trust_limits_and_reporting() -> None:
    policy = text("SECURITY.md")
    headings = re.findall(r"^##+ (.*)$", policy, re.MULTILINE)
    for heading in ("Reporting a vulnerability", "Who is trusted with what", "What is not defended"):
        assert heading in headings
    for who in ("The author of the configuration", "Servers", "Clients", "Other users of the machine", "Web pages"):
        assert who in headings
    assert "Report a vulnerability" in policy


def test_the_design_names_code_that_exists() -> None:
    rows = text("docs/internals/design.md").partition("### Where a change goes")[2].partition("\n## ")[0]
    package = ROOT / "src" / "mcp_workbench"
    source = "\n".join(path.read_text("utf-8") for path in package.rglob("*.py"))
    named = [word.partition("(")[0] for word in re.findall(r"`([^`]+)`", rows)]
    assert "TeamGate.steps" in named
    for name in named:
        if "/" in name or name.endswith(".py"):
            assert (package / name).exists() or (ROOT / name).exists(), name
        elif name.islower() and "_" not in name.strip("_"):
            assert name in COMMANDS, name
        else:
            assert re.search(rf"(?:class|def) {name.rpartition('.')[2]}\b", source), name


def test_the_design_names_every_setting_that_needs_a_restart() -> None:
    page = text("docs/internals/design.md")
    said = page.partition("listen to what there is. ")[2].partition(" stay as they were at")[0]
    assert set(re.findall(r"`(\w+)`", said)) == {"face", *FIXED.values()}
