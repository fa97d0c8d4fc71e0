"""How a setting is declared: once, as the default of its field in the model.

    timeout: float = setting(Seconds(), "How long a call may take, in seconds.", 120.0)

Owns what a declaration says: the kind of value, a sentence, the default, whether it identifies a server, whether it
needs a restart. Reading a file, the JSON Schema, the identity of servers and the tables of
docs/reference/configuration.md are derived from it. Does not know which settings there are (`model` and the modules
beside it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct, StructMeta

if TYPE_CHECKING:
    from mcp_workbench.engine.config.kinds import Kind, Schema

REQUIRED: Any = object()


class Setting(Struct, eq=False):
    """A setting. `field` is empty if the model has no field for it, because it only affects others."""

    kind: Kind
    # For editors and docs/reference/configuration.md. Says what leaving the setting out means, unless `shown` does.
    description: str
    # Of the field.
    default: Any
    # The default as it would be written in the file; None: there is none that could be.
    shown: object
    # In the file.
    name: str
    title: str
    # Whether it determines which server this is, or what it offers. "if set": servers without it have the identity that
    # they had before the setting existed.
    identity: Literal["always", "if set"] | None
    # Whether clients that are connected rely on it, so that a change has to wait.
    needs_restart: bool
    # Never printed.
    is_secret: bool
    # May refer to values that are fetched when a server starts.
    fetches: bool
    field: str = ""

    def schema(self) -> Schema:
        described: Schema = {"title": self.title or _title_of(self.name), "description": self.description}
        described |= self.kind.schema()
        return described if self.shown is None else {**described, "default": self.shown}


def setting(
    kind: Kind,
    description: str,
    default: Any = None,
    *,
    shown: object = ...,
    name: str = "",
    title: str = "",
    identity: Literal["always", "if set"] | None = None,
    needs_restart: bool = False,
    is_secret: bool = False,
    fetches: bool = False,
) -> Any:
    """Declare a setting as the default of a field; without an annotation, one that has no field."""
    if shown is ...:
        shown = None if default is REQUIRED else list(default) if isinstance(default, tuple) else default
    return Setting(kind, description, default, shown, name, title, identity, needs_restart, is_secret, fetches)


class _DeclaredMeta(StructMeta):
    def __new__(
        mcls: type[_DeclaredMeta], name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _DeclaredMeta:
        table: dict[str, Setting] = {}
        fields = namespace.get("__annotations__", {})
        declared = [(attribute, value) for attribute, value in namespace.items() if type(value) is Setting]
        for attribute, value in declared:
            if not value.name:
                first, *others = attribute.split("_")
                value.name = first + "".join(map(str.capitalize, others))
            table[value.name] = value
            if attribute in fields:
                value.field = attribute
                namespace[attribute] = value.default
            if attribute not in fields or value.default is REQUIRED:
                del namespace[attribute]
        namespace["SETTINGS"] = table
        return super().__new__(mcls, name, bases, namespace, **options)


class Declared(Struct, frozen=True, metaclass=_DeclaredMeta):
    """A part of the model whose fields are declared as settings. `SETTINGS` has its own by their names in the file."""

    SETTINGS: ClassVar[dict[str, Setting]]


def schemas_of(settings: dict[str, Setting]) -> dict[str, Schema]:
    return {name: each.schema() for name, each in settings.items()}


def _title_of(name: str) -> str:
    """Return `clientId` as words."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).capitalize()
