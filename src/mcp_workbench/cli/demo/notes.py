"""Demo server `notes`: add, list, search and delete notes, which are resources and can be watched.

Run as `python -m mcp_workbench.cli.demo.notes [--with-samples] [FILE]`. Without a file the notes live as long as
the process.
"""

from __future__ import annotations

import json
import os
import sys
import time

from mcp_workbench.cli.demo.stdio_server import (
    INVALID_PARAMS,
    SUBSCRIPTION_ID,
    RpcError,
    Server,
    ToolError,
    object_schema,
    usage_error,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mcp_workbench.cli.demo.stdio_server import Json, Outcome, Request

NOTES_USAGE = "usage: python -m mcp_workbench.cli.demo.notes [--with-samples] [FILE]"
INDEX = "notes:///index"
SAMPLES = (
    ("Groceries", "Oat milk, lentils, two lemons.", ["home"]),
    ("Release checklist", "Changelog, version, tag, announcement.", ["work", "release"]),
    ("Book to read", "The Mythical Man-Month, for the chapter about the surgical team.", ["home", "books"]),
)

TEMPLATE = {
    "uriTemplate": "notes:///{id}",
    "name": "note",
    "title": "One note",
    "description": "The text of the note with this number.",
    "mimeType": "text/markdown",
}
SUMMARIZE_NOTES = {
    "name": "summarize_notes",
    "title": "Summarize notes",
    "description": "Ask for a summary of the notes, all of them or those with one tag.",
    "arguments": [{"name": "tag", "description": "Only notes with this tag", "required": False}],
}
# MCP's own, of the legacy revisions; since 2026-07-28 there is none for it.
LEGACY_RESOURCE_NOT_FOUND = -32002
# The specification's limit for one response.
MAX_COMPLETIONS = 100

NON_EMPTY_STRING = {"type": "string", "minLength": 1}
TAGS = {"type": "array", "items": NON_EMPTY_STRING}
NOTE_SCHEMA = object_schema(
    {
        "id": {"type": "integer"},
        "title": {"type": "string"},
        "text": {"type": "string"},
        "tags": TAGS,
        "created": {"type": "string", "format": "date-time"},
    }
)
NOTES = object_schema({"notes": {"type": "array", "items": NOTE_SCHEMA}})


class Notebook:
    """The notes, in memory and, if there is a file, saved to it after each change."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self.notes: dict[int, Json] = {}
        self._last_id = 0
        if path is not None and os.path.exists(path):
            self._load(path)

    def _load(self, path: str) -> None:
        try:
            with open(path, encoding="utf-8") as file:
                self.notes = {
                    int(note["id"]): {key: note[key] for key in NOTE_SCHEMA["required"]} for note in json.load(file)
                }
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Continuing would overwrite the file.
            usage_error(f"cannot read notes from `{path}`: {error!r}")
        # Numbers of deleted notes are not used again while the server runs: clients may still refer to them.
        self._last_id = max(self.notes, default=0)

    def _save(self) -> None:
        if self.path is None:
            return
        # A crash while writing must not lose existing notes.
        unfinished = f"{self.path}.{os.getpid()}.part"
        try:
            with open(unfinished, "w", encoding="utf-8") as file:
                json.dump(list(self.notes.values()), file, ensure_ascii=False, indent=2)
            os.replace(unfinished, self.path)
        except OSError as error:
            raise ToolError(f"the notes could not be saved: {error}") from error

    def add(self, title: str, text: str, tags: list[str]) -> Json:
        self._last_id += 1
        # `datetime` would take longer to import than all else here.
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        note = {"id": self._last_id, "title": title, "text": text, "tags": tags, "created": created}
        self.notes[self._last_id] = note
        self._save()
        return note

    def delete(self, number: int) -> Json:
        if number not in self.notes:
            raise ToolError(f"there is no note {number}; the notes are {sorted(self.notes) or 'none'}")
        note = self.notes.pop(number)
        self._save()
        return note

    def tagged(self, tag: str | None) -> list[Json]:
        return [note for note in self.notes.values() if tag is None or tag in note["tags"]]

    def tags(self) -> list[str]:
        return sorted({tag for note in self.notes.values() for tag in note["tags"]})

    def resources(self) -> list[Json]:
        index = {
            "uri": INDEX,
            "name": "index",
            "title": "All notes",
            "description": "Number, title and tags of every note.",
            "mimeType": "text/markdown",
        }
        notes = [
            {"uri": uri_of(note), "name": f"note-{note['id']}", "title": note["title"], "mimeType": "text/markdown"}
            for note in self.notes.values()
        ]
        return [index, *notes]

    def read(self, uri: str) -> Json | None:
        if uri == INDEX:
            return {"mimeType": "text/markdown", "text": as_lines(list(self.notes.values()))}
        for note in self.notes.values():
            if uri == uri_of(note):
                return {"mimeType": "text/markdown", "text": f"# {note['title']}\n\n{note['text']}\n"}
        return None


def uri_of(note: Json) -> str:
    return f"notes:///{note['id']}"


def as_lines(notes: list[Json]) -> str:
    lines = [f"- {note['id']}: {note['title']}" + "".join(f" #{tag}" for tag in note["tags"]) for note in notes]
    return "\n".join(lines) or "No notes."


def build(notebook: Notebook) -> Server:
    server = Server("notes", "Demo notes", "Keeps short notes with tags. Search before you add what may be there.")

    def changed(*uris: str) -> None:
        """Notify those who asked to be told: the list has changed, and so have these resources."""
        for subscription, wanted in server.listening.items():
            meta = {} if subscription is None else {"_meta": {SUBSCRIPTION_ID: subscription}}
            if wanted.get("resourcesListChanged"):
                server.notify("notifications/resources/list_changed", meta)
            for uri in uris:
                if uri in wanted.get("resourceSubscriptions", ()):
                    server.notify("notifications/resources/updated", {**meta, "uri": uri})

    @server.tool(
        "Add a note and return it with its number.",
        {"title": NON_EMPTY_STRING, "text": {"type": "string"}, "tags": TAGS},
        required=("title", "text"),
        output=NOTE_SCHEMA,
        read_only=False,
    )
    def add_note(request: Request, title: str, text: str, tags: list[str] | None = None) -> Outcome:
        note = notebook.add(title, text, tags or [])
        request.log("info", f"note {note['id']} added")
        changed(INDEX, uri_of(note))
        return f"Added note {note['id']}: {title}", note

    @server.tool("List the notes, all of them or those with one tag.", {"tag": NON_EMPTY_STRING}, output=NOTES)
    def list_notes(request: Request, tag: str | None = None) -> Outcome:
        found = notebook.tagged(tag)
        return as_lines(found), {"notes": found}

    @server.tool(
        "Find the notes that contain every word of the query, in title, text or tags.",
        {"query": NON_EMPTY_STRING},
        required=("query",),
        output=NOTES,
    )
    def search_notes(request: Request, query: str) -> Outcome:
        words = query.casefold().split()

        def matches(note: Json) -> bool:
            content = " ".join((note["title"], note["text"], *note["tags"])).casefold()
            return all(word in content for word in words)

        found = [note for note in notebook.notes.values() if matches(note)]
        return as_lines(found), {"notes": found}

    @server.tool(
        "Delete the note with this number and return it.",
        {"id": {"type": "integer", "minimum": 1}},
        required=("id",),
        output=NOTE_SCHEMA,
        read_only=False,
    )
    def delete_note(request: Request, id: int) -> Outcome:
        note = notebook.delete(id)
        request.log("notice", f"note {id} deleted")
        changed(INDEX, uri_of(note))
        return f"Deleted note {id}: {note['title']}", note

    def get_prompt(request: Request) -> Json:
        name, tag = request.string("name"), request.object("arguments").get("tag")
        if name != SUMMARIZE_NOTES["name"]:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {name}")
        which = "my notes" if tag is None else f"my notes about {tag}"
        notes = [f"{note['title']}: {note['text']}" for note in notebook.tagged(tag)]
        text = "\n\n".join([f"Summarize {which} in three sentences.", *notes])
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": SUMMARIZE_NOTES["description"], "messages": [message]}

    def complete(request: Request) -> Json:
        reference, argument = request.object("ref"), request.object("argument")
        values: list[str] = []
        if reference.get("name") == SUMMARIZE_NOTES["name"] and argument.get("name") == "tag":
            start = str(argument.get("value", "")).casefold()
            values = [tag for tag in notebook.tags() if tag.casefold().startswith(start)]
        shown = values[:MAX_COMPLETIONS]
        return {"completion": {"values": shown, "total": len(values), "hasMore": len(values) > len(shown)}}

    def read_resource(request: Request) -> Json:
        uri = request.string("uri")
        contents = notebook.read(uri)
        if contents is None:
            code = INVALID_PARAMS if request.modern else LEGACY_RESOURCE_NOT_FOUND
            raise RpcError(code, "Resource not found", {"uri": uri})
        return {"contents": [{"uri": uri, **contents}]}

    def subscribe(request: Request) -> Json:
        server.listening[None]["resourceSubscriptions"].append(request.string("uri"))
        return {}

    def unsubscribe(request: Request) -> Json:
        subscribed = server.listening[None]["resourceSubscriptions"]
        subscribed[:] = [uri for uri in subscribed if uri != request.string("uri")]
        return {}

    server.capabilities |= {"prompts": {}, "completions": {}, "resources": {"subscribe": True, "listChanged": True}}
    server.methods |= {
        "prompts/list": lambda request: {"prompts": [SUMMARIZE_NOTES]},
        "prompts/get": get_prompt,
        "completion/complete": complete,
        "resources/list": lambda request: {"resources": notebook.resources()},
        "resources/templates/list": lambda request: {"resourceTemplates": [TEMPLATE]},
        "resources/read": read_resource,
    }
    server.legacy_methods |= {"resources/subscribe": subscribe, "resources/unsubscribe": unsubscribe}
    return server


def main() -> None:
    arguments = sys.argv[1:]
    samples = "--with-samples" in arguments
    files = [argument for argument in arguments if argument != "--with-samples"]
    if len(files) > 1 or any(name.startswith("-") for name in files):
        usage_error(NOTES_USAGE)
    notebook = Notebook(files[0] if files else None)
    if samples and not notebook.notes:
        for title, text, tags in SAMPLES:
            notebook.add(title, text, tags)
    build(notebook).run()


if __name__ == "__main__":
    main()
