"""`server.json`: packages become commands, addresses entries, and what is asked for is asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.clients.server_json import Described, described


def read(**document: Any) -> Described:
    return described(json.dumps({"name": "io.example/x", **document}).encode(), "server.json")


def package(kind: str, identifier: str, **more: Any) -> dict[str, Any]:
    return {"registryType": kind, "identifier": identifier, "version": "1.2", "transport": {"type": "stdio"}, **more}


@pytest.mark.parametrize(
    ("written", "command"),
    [
        (package("npm", "@x/y"), ["npx", "-y", "--", "@x/y@1.2"]),
        (package("npm", "@x/y", runtimeHint="bunx"), ["bunx", "--", "@x/y@1.2"]),
        (package("pypi", "x-y"), ["uvx", "--", "x-y@1.2"]),
        (package("pypi", "x-y", runtimeHint="pipx"), ["pipx", "run", "--", "x-y==1.2"]),
        (package("nuget", "X.Y"), ["dnx", "X.Y@1.2", "--yes"]),
        (package("oci", "docker.io/x/y"), ["docker", "run", "-i", "--rm", "--", "docker.io/x/y:1.2"]),
        (package("oci", "ghcr.io/x/y:9", version=""), ["docker", "run", "-i", "--rm", "--", "ghcr.io/x/y:9"]),
        (package("npm", "y", runtimeHint="bash"), ["npx", "-y", "--", "y@1.2"]),
        (package("npm", "y", runtimeHint="docker"), ["npx", "-y", "--", "y@1.2"]),
    ],
)
def test_a_package_becomes_a_command(written: dict[str, Any], command: list[str]) -> None:
    (way,) = read(packages=[written]).ways
    entry = way.entry({})
    assert [entry["command"], *entry["args"]] == command
    assert way.program == command[0]


def test_arguments_stand_where_they_belong_and_optional_ones_only_where_they_are_given() -> None:
    written = package(
        "oci",
        "x/y",
        runtimeArguments=[
            {
                "type": "named",
                "name": "--mount",
                "value": "src={source},dst={target}",
                "variables": {"source": {"isRequired": True}, "target": {"value": "/project"}},
            }
        ],
        packageArguments=[
            {"type": "positional", "value": "start"},
            {"type": "positional", "valueHint": "folder", "isRequired": True, "description": "what to read"},
            {"type": "named", "name": "--port", "default": 80},
            {"type": "named", "name": "--quiet", "value": ""},
        ],
        environmentVariables=[
            {"name": "KEY", "isRequired": True, "isSecret": True},
            {"name": "LEVEL", "default": "info", "choices": ["info", "debug"]},
            {"name": "MODE", "value": "stdio"},
        ],
    )
    (way,) = read(packages=[written]).ways
    assert [(each.name, each.is_required, each.is_secret, each.default) for each in way.inputs] == [
        ("source", True, False, None),
        ("folder", True, False, None),
        ("port", False, False, "80"),
        ("KEY", True, True, None),
        ("LEVEL", False, False, "info"),
    ]
    assert way.entry({"source": "/a", "folder": "/b", "KEY": "${keyring:k}"}) == {
        "command": "docker",
        "args": [
            *"run -i --rm -e KEY -e MODE --mount=src=/a,dst=/project -- x/y:1.2".split(),
            "start",
            "/b",
            "--quiet",
        ],
        "env": {"KEY": "${keyring:k}", "MODE": "stdio"},
    }
    assert "--port" in way.entry({"source": "/a", "folder": "/b", "KEY": "", "port": "81"})["args"]


def test_the_first_generation_with_underscores_is_read_too() -> None:
    server = read(
        packages=[
            {
                "registry_type": "npm",
                "identifier": "y",
                "version": "1",
                "environment_variables": [{"name": "API_KEY", "is_required": True, "is_secret": True}],
            }
        ],
        remotes=[{"transport_type": "sse", "url": "https://x.example/sse"}],
    )
    local, remote = server.ways
    assert local.inputs[0].is_secret and local.inputs[0].name == "API_KEY"
    assert remote.entry({}) == {"url": "https://x.example/sse", "type": "sse"}


def test_names_from_before_the_summer_of_2025_are_read_too() -> None:
    server = read(
        packages=[
            {"registry_name": "pypi", "name": "y", "version": "1"},
            {"registry_name": "docker", "name": "o/z", "version": "2"},
            {"registry_name": "unknown", "name": "owner/repository", "version": ""},
            {"registry_name": "npm"},
        ]
    )
    assert [way.entry({})["args"] for way in server.ways] == [["--", "y@1"], ["run", "-i", "--rm", "--", "o/z:2"]]
    assert server.left_out == (
        "the unknown package owner/repository is of a kind that cannot be run here",
        "a package has no identifier",
    )


def test_an_address_has_variables_and_headers() -> None:
    remote = {
        "type": "streamable-http",
        "url": "https://{tenant}.example/mcp",
        "variables": {"tenant": {"description": "yours"}},
        "headers": [
            {"name": "Authorization", "value": "Bearer {token}", "variables": {"token": {"isSecret": True}}},
            {"name": "X-Region", "default": "eu"},
        ],
    }
    (way,) = read(remotes=[remote]).ways
    assert [(each.name, each.is_required) for each in way.inputs] == [
        ("tenant", True),
        ("token", True),
        ("X-Region", False),
    ]
    assert way.entry({"tenant": "me", "token": "${T}"}) == {
        "url": "https://me.example/mcp",
        "headers": {"Authorization": "Bearer ${T}"},
    }


def test_foreign_text_is_never_resolved_as_a_reference() -> None:
    written = package(
        "npm",
        "y",
        runtimeArguments=[{"type": "named", "name": "--registry", "value": "${cmd:touch /tmp/x}"}],
        packageArguments=[{"type": "positional", "value": "${file:/etc/passwd}"}],
        environmentVariables=[{"name": "A", "value": "${keyring:github}"}],
    )
    (way,) = read(packages=[written]).ways
    entry = way.entry({})
    assert entry["args"] == [
        "-y",
        "--registry=${DOLLAR:-$}{cmd:touch /tmp/x}",
        "--",
        "y@1.2",
        "${DOLLAR:-$}{file:/etc/passwd}",
    ]
    assert entry["env"] == {"A": "${DOLLAR:-$}{keyring:github}"}


@pytest.mark.parametrize(
    "more",
    [
        {"runtimeHint": "bash", "runtimeArguments": [{"type": "named", "name": "-c", "value": "touch /tmp/x"}]},
        {"environmentVariables": [{"name": "A=b", "value": "x"}]},
        {"environmentVariables": [{"name": "-x", "value": "x"}]},
    ],
)
def test_a_package_brings_no_program_and_no_odd_variable_of_its_own(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="has no server that can be started here"):
        read(packages=[package("npm", "y", **more)])


def test_ways_that_cannot_be_gone_are_reported() -> None:
    server = read(
        packages=[package("mcpb", "https://x.example/x.mcpb"), package("npm", "y", transport={"type": "sse"})],
        remotes=[{"type": "http", "url": "https://x.example"}, {"type": "ws", "url": "wss://x.example"}],
    )
    assert len(server.ways) == 1 and len(server.left_out) == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[1]", "is not a server.json"),
        (b"{", "is not a server.json"),
        (b'{"packages": [{"registryType": "npm"}]}', "a package has no identifier"),
        (b'{"name": "x"}', "neither packages nor remotes"),
        (b'{"packages": [{"registryType": "cargo", "identifier": "x"}]}', "of a kind that cannot be run here"),
    ],
)
def test_an_invalid_server_json_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        described(content, "server.json")


def test_an_answer_of_the_registry_holds_the_server_inside() -> None:
    document = {"server": {"name": "a/b", "remotes": [{"type": "sse", "url": "https://x.example"}]}, "_meta": {}}
    assert described(json.dumps(document).encode(), "a/b").name == "a/b"


@pytest.mark.requirement("cli.add-shown")
@pytest.mark.parametrize(
    ("kind", "identifier"),
    [
        ("npm", "--call=touch /tmp/x"),
        ("npm", "owner/repository"),
        ("npm", "https://x.example/y.tgz"),
        ("npm", "./y"),
        ("npm", "@x"),
        ("pypi", "--from=evil"),
        ("pypi", "git+https://x.example/y"),
        ("pypi", "y @ https://x.example"),
        ("oci", "--privileged"),
        ("oci", "x/y z"),
        ("oci", "X/Y"),
        ("nuget", "--source"),
        ("npm", "${cmd:touch /tmp/x}"),
        ("npm", "y" * 256),
    ],
)
def test_an_identifier_that_no_package_can_have_is_refused(kind: str, identifier: str) -> None:
    good = package("npm", "good")
    server = read(packages=[package(kind, identifier), good])
    assert [way.label for way in server.ways] == ["npm package good 1.2"]
    assert server.left_out[0].endswith(f"has an identifier that no {kind} package can have")


@pytest.mark.parametrize(
    ("kind", "identifier"),
    [
        ("npm", "@modelcontextprotocol/server-everything"),
        ("npm", "JSONStream"),
        ("pypi", "mcp_server.time-2"),
        ("oci", "localhost:5000/x/y-z__a:1.2"),
        ("oci", f"ghcr.io/x/y@sha256:{'a' * 64}"),
        ("nuget", "Contoso.Mcp-Server_1"),
    ],
)
def test_names_of_packages_that_exist_are_taken(kind: str, identifier: str) -> None:
    (way,) = read(packages=[package(kind, identifier, version="")]).ways
    assert identifier in way.entry({})["args"]


@pytest.mark.parametrize("version", ["https://x.example/y.tgz", "npm:other", "file:..", "1.0 --call", "-1", "../x"])
def test_a_version_is_never_another_place(version: str) -> None:
    with pytest.raises(ConfigError, match="has a version that no npm package can have"):
        read(packages=[package("npm", "y", version=version)])


@pytest.mark.requirement("cli.add-shown")
@pytest.mark.parametrize(
    ("kind", "variable"),
    [
        ("npm", "NODE_OPTIONS"),
        ("npm", "npm_config_registry"),
        ("npm", "PATH"),
        ("pypi", "UV_INDEX_URL"),
        ("pypi", "PYTHONPATH"),
        ("pypi", "PYTHONWARNINGS"),
        ("npm", "BROWSER"),
        ("oci", "LD_PRELOAD"),
        ("oci", "DOCKER_HOST"),
        ("nuget", "DOTNET_STARTUP_HOOKS"),
        ("npm", "dyld_insert_libraries"),
    ],
)
@pytest.mark.parametrize("member", ["value", "default", "description"])
def test_a_variable_that_can_load_code_is_refused(kind: str, variable: str, member: str) -> None:
    variables = [{"name": "LEVEL", "value": "x"}, {"name": variable, member: "x"}]
    with pytest.raises(ConfigError, match=f"sets the variable `{variable}`, which can load other code"):
        read(packages=[package(kind, "y", environmentVariables=variables)])


@pytest.mark.requirement("cli.add-shown")
@pytest.mark.parametrize(
    ("kind", "variable"),
    [("npm", "NODE_TLS_REJECT_UNAUTHORIZED"), ("npm", "node_extra_ca_certs"), ("pypi", "SSL_CERT_FILE")],
)
@pytest.mark.parametrize("member", ["value", "default"])
def test_a_description_does_not_decide_whose_certificates_a_runner_accepts(
    kind: str, variable: str, member: str
) -> None:
    variables = [{"name": "HTTPS_PROXY", "value": "http://x.example"}, {"name": variable, member: "0"}]
    with pytest.raises(ConfigError, match=f"sets the variable `{variable}`, which decides whose certificates"):
        read(packages=[package(kind, "y", environmentVariables=variables)])


@pytest.mark.parametrize(("kind", "member"), [("npm", "description"), ("oci", "value")])
def test_certificates_that_the_user_names_or_a_container_accepts_are_no_fault(kind: str, member: str) -> None:
    variables = [{"name": "SSL_CERT_FILE", member: "x"}]
    assert read(packages=[package(kind, "y", environmentVariables=variables)]).ways


@pytest.mark.parametrize(("kind", "variable"), [("npm", "DOCKER_HOST"), ("oci", "PYTHONUNBUFFERED"), ("npm", "PATHS")])
def test_other_variables_are_the_packages_own_affair(kind: str, variable: str) -> None:
    (way,) = read(packages=[package(kind, "y", environmentVariables=[{"name": variable, "value": "x"}])]).ways
    assert way.entry({})["env"] == {variable: "x"}


@pytest.mark.parametrize(
    ("kind", "argument", "why"),
    [
        ("npm", {"type": "named", "name": "-c", "value": "touch x"}, "sets the option `-c` of `npx`"),
        ("npm", {"type": "positional", "value": "--cal=touch x"}, "sets the option `--cal` of `npx`"),
        ("npm", {"type": "positional", "value": "evil"}, "sets the option `-y` of `npx`"),
        ("npm", {"type": "named", "name": "--yes", "value": "evil"}, "sets the option `--yes` of `npx`"),
        ("npm", {"type": "named", "name": "--yes", "isRequired": True}, "sets the option `--yes` of `npx`"),
        ("pypi", {"type": "named", "name": "--env-file", "value": "x"}, "sets the option `--env-file` of `uvx`"),
        ("pypi", {"type": "named", "name": "--with-editable", "value": "x"}, "sets the option `--with-editable`"),
        ("pypi", {"type": "positional", "value": "--config-file=x"}, "sets the option `--config-file` of `uvx`"),
        ("pypi", {"type": "named", "name": "--python", "value": "/x"}, "sets the option `--python` of `uvx`"),
        ("pypi", {"type": "named", "name": "--python", "default": "x"}, "sets the option `--python` of `uvx`"),
        ("pypi", {"type": "named", "name": "-p", "value": "evil"}, "sets the option `-p` of `uvx`"),
        ("pypi", {"type": "positional", "value": "--python={x}"}, "sets the option `--python` of `uvx`"),
        ("pypi", {"type": "positional", "value": "evil"}, "sets the option `-q` of `uvx`"),
        ("pypi", {"type": "named", "name": "evil", "value": "x"}, "has `evil` where `uvx` expects the package"),
        ("oci", {"type": "named", "name": "evil", "value": ""}, "has `evil` where `docker` expects the package"),
        ("oci", {"type": "positional", "value": "--"}, "has `--` where `docker` expects the package"),
        ("oci", {"type": "positional", "valueHint": "image"}, "has `image` where `docker` expects the package"),
    ],
)
def test_no_option_makes_another_program_of_it(kind: str, argument: dict[str, Any], why: str) -> None:
    usual = {"npm": "-y", "pypi": "-q", "oci": "--init"}[kind]
    arguments = [{"type": "positional", "value": usual}, argument]
    with pytest.raises(ConfigError, match=why):
        read(packages=[package(kind, "y", runtimeArguments=arguments)])


@pytest.mark.parametrize(
    ("kind", "arguments", "command"),
    [
        (
            "pypi",
            [{"type": "named", "name": "--default-index", "value": "https://p.example"}, {"value": "--from"}],
            "uvx --default-index=https://p.example --from=y@1.2 -- serve",
        ),
        ("npm", [{"type": "positional", "value": "--package"}], "npx -y --package=y@1.2 -- serve"),
        (
            "oci",
            [{"value": "-e"}, {"value": "A=b"}, {"value": "--init"}],
            "docker run -i --rm -eA=b --init -- y:1.2 serve",
        ),
        (
            "pypi",
            [
                {"value": "--python"},
                {"value": ">=3.11,<3.14"},
                {"value": "-q"},
                {"name": "-p", "value": "cpython@3.12"},
            ],
            "uvx --python=>=3.11,<3.14 -q -pcpython@3.12 -- y@1.2 serve",
        ),
        ("oci", [{"name": "--platform", "value": "x"}], "docker run -i --rm --platform=x -- y:1.2 serve"),
    ],
)
def test_options_and_values_may_be_written_as_two(kind: str, arguments: list[dict[str, Any]], command: str) -> None:
    """A value that is no value of its option makes the runner fail, and is never the package."""
    serve = [{"type": "positional", "value": "serve"}]
    (way,) = read(packages=[package(kind, "y", runtimeArguments=arguments, packageArguments=serve)]).ways
    entry = way.entry({})
    assert " ".join([entry["command"], *entry["args"]]) == command


def test_a_value_stays_with_its_option() -> None:
    """After an option that takes none, it would be the image or the package."""
    arguments = [
        {"type": "named", "name": "--rm", "value": "evil"},
        {"type": "named", "name": "-v", "value": "/a:/b"},
        {"type": "named", "name": "-i", "value": ""},
    ]
    (way,) = read(packages=[package("oci", "y", runtimeArguments=arguments)]).ways
    assert way.entry({})["args"] == ["run", "-i", "--rm", "--rm=evil", "-v/a:/b", "-i", "--", "y:1.2"]
    (way,) = read(packages=[package("npm", "y", runtimeArguments=[{"type": "named", "name": "-p", "value": "z"}])]).ways
    assert way.entry({})["args"] == ["-y", "--package=z", "--", "y@1.2"]


def test_a_package_of_another_registry_is_not_taken_from_the_usual_one() -> None:
    server = read(
        packages=[
            package("npm", "y", registryBaseUrl="https://npm.x.example"),
            package("npm", "z", registryBaseUrl="https://www.npmjs.org"),
            package("oci", "x/y", registryBaseUrl="https://ghcr.io"),
            package("oci", "ghcr.io/x/z", registryBaseUrl="https://ghcr.io"),
            package("oci", "x/w", registryBaseUrl="https://docker.io"),
        ]
    )
    assert server.left_out == ("the npm package y 1.2 is in the registry `npm.x.example`, which `npx` does not ask",)
    assert [way.entry({})["args"][-1] for way in server.ways] == [
        "z@1.2",
        "ghcr.io/x/y:1.2",
        "ghcr.io/x/z:1.2",
        "x/w:1.2",
    ]
