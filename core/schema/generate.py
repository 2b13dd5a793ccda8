#!/usr/bin/env python3
"""Makes C++ from a schema of Cap'n Proto and its annotations (core/schema/annotations.capnp).

    generate.py --schema INCLUDES/capnp/schema.capnp --root SOURCE --out DIR FILE.capnp...

For each FILE.capnp there are four headers in DIR:
  FILE.structs.h  the plain structs, with the comments of the schema;
  FILE.encode.h   put(): writes a struct into Cap'n Proto's types, for the one source file that includes
                  core/messages/fields.h before;
  FILE.decode.h   get(): reads a struct from Cap'n Proto's types, for such a file, which may be another;
  FILE.members.h  each_member(): calls a visitor with every member of a struct, and a text's limit, for tests.
"""

import argparse
import pathlib
import re
import subprocess

NUMBERS = {"bool": "bool"}
for bits in (8, 16, 32, 64):
    NUMBERS |= {f"int{bits}": f"std::int{bits}_t", f"uint{bits}": f"std::uint{bits}_t"}


def fail(place, problem):
    raise SystemExit(f"{place}: {problem}")


# ---- the compiler's output -------------------------------------------------------------------------

TOKEN = re.compile(r'\s*(?:([()\[\],=])|"((?:[^"\\]|\\.)*)"|(<[^>]*>|[^\s()\[\],=]+))')
ESCAPES = {"n": "\n", "t": "\t"}


def unescape(found):
    code = found[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else ESCAPES.get(code, code)


def parse(text):
    """Reads Cap'n Proto's text form: a struct is a dict, a list is a list, all else is a str."""
    tokens = TOKEN.findall(text)
    at = 0

    def value():
        nonlocal at
        mark, string, word = tokens[at]
        at += 1
        if mark == "(":
            result = {}
            while tokens[at][0] != ")":
                name = tokens[at][2]
                at += 2  # the name and "="
                result[name] = value()
                at += tokens[at][0] == ","
        elif mark == "[":
            result = []
            while tokens[at][0] != "]":
                result.append(value())
                at += tokens[at][0] == ","
        else:
            return word or re.sub(r"\\(x[0-9a-f]{2}|.)", unescape, string)
        at += 1  # the closing bracket
        return result

    return value()


def compile_schemas(arguments):
    request = subprocess.run(
        [arguments.capnp, "compile", "-o-", f"-I{arguments.root}", f"--src-prefix={arguments.root}", *arguments.files],
        check=True, stdout=subprocess.PIPE).stdout
    text = subprocess.run(
        [arguments.capnp, "decode", arguments.schema, "CodeGeneratorRequest"],
        check=True, input=request, stdout=subprocess.PIPE).stdout
    return parse(text.decode())


# ---- names -----------------------------------------------------------------------------------------


def capital(name):
    return name[0].upper() + name[1:]


def snake(name):
    return re.sub(r"([A-Z])", lambda found: "_" + found[1].lower(), name)


def comment(doc, indent):
    return [f"{indent}/// {line}".rstrip() for line in doc.strip().split("\n")] if doc else []


def with_comment(line, doc):
    """The comment behind the line where there is room, otherwise above it."""
    indent = line[:len(line) - len(line.lstrip())]
    whole = f"{line}  ///< {doc.strip()}"
    return [whole] if doc and len(whole) <= 100 and "\n" not in doc.strip() else [*comment(doc, indent), line]


# ---- the schema as objects -------------------------------------------------------------------------


class Node:
    """A file, struct, group or enum of the schema."""

    def __init__(self, schema, raw, info):
        self.schema, self.raw = schema, raw
        self.id, self.parent = raw["id"], raw["scopeId"]
        self.kind = next((kind for kind in ("file", "struct", "enum", "annotation", "const") if kind in raw), "")
        self.name = capital(raw["displayName"][int(raw["displayNamePrefixLength"]):])
        self.doc = info.get("docComment", "")
        self.marks = schema.marks(raw)
        self.is_group = self.kind == "struct" and raw["struct"]["isGroup"] == "true"
        members = info.get("members", [])
        docs = [member.get("docComment", "") for member in members] + [""] * 1000
        if self.kind == "struct":
            pairs = list(zip(raw["struct"].get("fields", []), docs))
            pairs.sort(key=lambda pair: int(pair[0]["codeOrder"]))
            self.fields = [Field(self, field, doc) for field, doc in pairs]
            self.alternatives = [field for field in self.fields if field.in_union]
        if self.kind == "enum":
            values = enumerate(raw["enum"]["enumerants"])
            self.values = [(number, value["name"], doc) for (number, value), doc in zip(values, docs)]
            self.valid = [value for value in self.values if value[1] != "invalid"]

    @property
    def file(self):
        return self if self.kind == "file" else self.schema.nodes[self.parent].file

    def children(self):
        return [self.schema.nodes[nested["id"]] for nested in self.raw.get("nestedNodes", [])]

    def constants(self):
        """Constants of a struct, from its annotations that have an enum's type: annotation `name` becomes kName."""
        marks = ((name, value) for name, value in self.marks.items() if isinstance(value, tuple))
        return [(name, (self.schema.nodes[enum], value)) for name, (enum, value) in marks]

    def groups(self):
        return [field.node for field in self.fields if field.kind == "group"]

    def path(self, wire):
        """The names from the file on. In C++ a group's struct stands beside its parent."""
        if self.kind == "file":
            return []
        parent = self.schema.nodes[self.parent]
        if self.is_group and not wire:
            while parent.kind != "file":
                parent = self.schema.nodes[parent.parent]
        return [*parent.path(wire), self.name]

    def wire(self):
        """The type of Cap'n Proto's C++."""
        return "::".join([self.file.marks["namespace"], "wire", *self.path(wire=True)])

    def cpp(self):
        """The C++ type, fully qualified."""
        if "type" in self.marks:
            return self.marks["type"]
        return "::".join([self.file.marks["namespace"], *self.path(wire=False)])

    def makes_struct(self):
        return self.kind == "struct" and "type" not in self.marks and "byHand" not in self.marks


class Field:
    def __init__(self, node, raw, doc):
        self.owner, self.schema, self.raw = node, node.schema, raw
        self.name, self.doc = raw["name"], doc
        self.marks = node.schema.marks(raw)
        self.member = self.marks.get("member", snake(self.name))
        self.in_union = raw["discriminantValue"] != "65535"
        self.type = raw["slot"]["type"] if "slot" in raw else {}
        self.kind = next(iter(self.type), "group")
        self.place = f"{node.raw['displayName']}.{self.name}"

    @property
    def node(self):
        """The struct, group or enum that the field, or each item of the list, is."""
        if self.kind == "group":
            return self.schema.nodes[self.raw["group"]["typeId"]]
        kind, detail = self.kind, self.type[self.kind]
        if kind == "list":
            kind, detail = next(iter(detail["elementType"].items()))
        return self.schema.nodes[detail["typeId"]] if kind in ("struct", "enum") else None

    def cpp(self):
        if "type" in self.marks:
            name = self.marks["type"]
        elif self.kind == "list":
            item = next(iter(self.type["list"]["elementType"]))
            name = self.marks.get("items") or (self.node.cpp() if self.node else self.plain(item))
            name = f"std::vector<{name}>"
        else:
            name = self.node.cpp() if self.node else self.plain(self.kind)
        return f"std::optional<{name}>" if "optional" in self.marks else name

    def plain(self, kind):
        if kind in ("text", "data"):
            return "std::string"
        return NUMBERS.get(kind) or fail(self.place, f"no C++ type for {kind}")

    def initial(self):
        if "initial" in self.marks:
            return f" = {self.marks['initial']}"
        if self.kind == "enum":
            return f" = {self.node.cpp()}::k{capital(self.node.valid[0][1])}"
        if self.kind in NUMBERS:
            if self.raw["slot"]["hadExplicitDefault"] == "true":
                return f" = {self.raw['slot']['defaultValue'][self.kind]}"
            return "{}" if "type" in self.marks else " = false" if self.kind == "bool" else " = 0"
        return ""

    def max(self, key="max"):
        if key in self.marks:
            return f"limits::{self.marks[key]}"
        if "unlimited" in self.schema.file_marks(self.owner):
            return "kNoLimit"
        fail(self.place, f"a limit is missing: ${key}(\"a name of core/base/limits.h\")")


class Schema:
    def __init__(self, request):
        self.names = {node["id"]: node["displayName"].split(":")[-1] for node in request["nodes"]}
        self.enums = {node["id"]: node["enum"]["enumerants"] for node in request["nodes"] if "enum" in node}
        self.types = {node["id"]: node["annotation"]["type"] for node in request["nodes"] if "annotation" in node}
        info = {each["id"]: each for each in request["sourceInfo"]}
        self.nodes = {}
        for raw in request["nodes"]:
            self.nodes[raw["id"]] = Node(self, raw, info.get(raw["id"], {}))
        for node in self.nodes.values():  # an annotation of a group stands on its field
            for field in getattr(node, "fields", []):
                if field.kind == "group":
                    field.node.marks |= {name: value for name, value in field.marks.items() if name != "presentIf"}

    def marks(self, raw):
        """The annotations by name. The value of an enum is a pair: the enum's id and the name of the value."""
        result = {}
        for annotation in raw.get("annotations", []):
            name = self.names[annotation["id"]]
            (kind, value), = annotation["value"].items()
            if kind == "enum":  # a constant of the struct
                enum = self.types[annotation["id"]]["enum"]["typeId"]
                value = (enum, self.enums[enum][int(value)]["name"])
            result[name] = [*result.get(name, []), value] if name == "include" else value
        return result

    def file_marks(self, node):
        return node.file.marks


def all_structs(node):
    """Yields the structs and groups below a node. A struct comes after its own structs and groups."""
    for child in node.children():
        if child.kind == "struct":
            yield from all_structs(child)
            yield child
    if node.kind == "struct":
        for group in node.groups():
            yield from all_structs(group)
            yield group


# ---- FILE.structs.h --------------------------------------------------------------------------------


def short(name, namespace):
    """A fully qualified name, as it is written in that namespace."""
    return re.sub(r"\bstdchk::", "", name.replace(namespace + "::", ""))


def member_lines(fields, namespace, indent):
    for field in fields:
        if "reserved" not in field.marks:
            line = short(f"{field.cpp()} {field.member}{field.initial()}", namespace)
            yield from with_comment(f"{indent}{line};", field.doc)


def struct_lines(node, namespace, indent=""):
    if node.alternatives:
        yield from union_lines(node, namespace)
        return
    for group in node.groups():
        if group.makes_struct():
            yield from struct_lines(group, namespace)
    if not node.makes_struct():
        return
    yield from comment(node.doc, indent)
    yield f"{indent}struct {node.name} {{"
    inner = indent + "  "
    if "title" in node.marks:
        yield f'{inner}static constexpr const char* kName = "{node.marks["title"]}";'
    for name, (enum, value) in node.constants():
        enum = short(enum.cpp(), namespace)
        yield f"{inner}static constexpr {enum} k{capital(name)} = {enum}::k{capital(value)};"
    for child in node.children():
        yield from struct_lines(child, namespace, inner)
    yield from member_lines(node.fields, namespace, inner)
    if "ordered" in node.marks:
        yield f"{inner}auto operator<=>(const {node.name}&) const = default;"
    else:
        yield f"{inner}bool operator==(const {node.name}&) const = default;"
    yield indent + "};"
    if not indent:
        yield ""


def union_lines(node, namespace):
    if "byHand" in node.marks:
        return
    for group in node.groups():
        if group.makes_struct():
            yield from struct_lines(group, namespace)
    yield from comment(node.doc, "")
    yield f"using Any{node.name} = std::variant<"
    types = [short(field.node.cpp(), namespace) for field in node.alternatives if field.kind != "void"]
    yield ",\n".join(f"    {name}" for name in types) + ">;"
    yield f"using {node.name} = OneOf<Any{node.name}>;"
    yield ""
    if "envelope" in node.marks:
        yield f"struct {node.name}Envelope {{"
        yield from member_lines([field for field in node.fields if not field.in_union], namespace, "  ")
        yield f"  {node.name} body;"
        yield f"  bool operator==(const {node.name}Envelope&) const = default;"
        yield "};"
        yield ""


def enum_lines(node):
    yield from comment(node.doc, "")
    yield f"enum class {node.name} : std::uint8_t {{"
    for number, name, doc in node.valid:
        yield from with_comment(f"  k{capital(name)} = {number},", doc)
    yield "};"
    first, last = node.valid[0][1], node.valid[-1][1]
    yield f"constexpr EnumRange<{node.name}> range_of({node.name}) {{"
    yield f"  return {{{node.name}::k{capital(first)}, {node.name}::k{capital(last)}}};"
    yield "}"
    yield ""


def constant_lines(node):
    (kind, value), = node.raw["const"]["value"].items()
    yield from comment(node.doc, "")
    yield f"inline constexpr {NUMBERS[kind]} k{node.name} = {value}{'U' if kind[0] == 'u' else ''};"
    yield ""


def structs_header(file, source):
    namespace = file.marks["namespace"]
    yield f"// Made of {source}, where each message, field and limit is described."
    yield "#pragma once"
    yield ""
    for include in file.marks.get("include", []):
        yield f"#include {include}" if include[0] == "<" else f'#include "{include}"'
    yield ""
    yield from comment(file.doc, "")
    yield f"namespace {namespace} {{"
    yield ""
    for child in file.children():
        yield from enum_lines(child) if child.kind == "enum" and "type" not in child.marks else ()
        yield from struct_lines(child, namespace) if child.kind == "struct" else ()
        yield from constant_lines(child) if child.kind == "const" else ()
    yield f"}}  // namespace {namespace}"


# ---- FILE.encode.h, FILE.decode.h ------------------------------------------------------------------


def wire_type(field):
    return field.node.wire() if field.kind == "enum" else NUMBERS[field.kind]


def value_checks(field, value, code):
    """The calls that refuse an invalid number."""
    if "required" in field.marks:
        yield f"check.require(bool({value}), Code::{code});"
    if "below" in field.marks:
        yield f"check.require(to_wire<{wire_type(field)}>({value}) < ({field.marks['below']}), Code::{code});"


def bytes_kind(field):
    unlimited = "unlimited" in field.schema.file_marks(field.owner)
    return "text" if field.kind == "text" else "bytes" if unlimited or "anyBytes" in field.marks else "path"


def limits_of(field):
    if field.kind == "list" and "text" in field.type["list"]["elementType"]:
        return f"{field.max()}, {field.max('itemMax')}"
    return field.max()


def put_lines(field):
    name, member = capital(field.name), f"from.{field.member}"
    condition = ""
    if "presentIf" in field.marks:
        condition = f"if ({member}.{field.marks['presentIf']}) "
    elif field.kind in ("text", "data", "list") and "unlimited" not in field.schema.file_marks(field.owner):
        condition = f"if (!{member}.empty()) "
    elif "optional" in field.marks:
        condition, member = f"if ({member}) ", f"*{member}"
    if field.kind in ("struct", "group"):
        yield f"{condition}put(check, to.init{name}(), {member});"
    elif field.kind in ("text", "data"):
        yield f"{condition}to.set{name}(put_{bytes_kind(field)}(check, {member}, {limits_of(field)}));"
    elif field.kind == "list":
        yield (f"{condition}put_list(check, {member}, [&](unsigned count) {{ return to.init{name}(count); }}, "
               f"{limits_of(field)});")
    else:
        yield from value_checks(field, member, "kInvalidArgument")
        yield f"to.set{name}(to_wire<{wire_type(field)}>({member}));"


def get_lines(field):
    name, member = capital(field.name), f"to.{field.member}"
    condition = f"if (from.has{name}()) " if "optional" in field.marks or "presentIf" in field.marks else ""
    if field.kind in ("struct", "group"):
        target = f"{member}.emplace()" if "optional" in field.marks else member
        yield f"{'' if field.kind == 'group' else condition}get(check, from.get{name}(), {target});"
    elif field.kind in ("text", "data"):
        kind = "bytes" if bytes_kind(field) == "bytes" else "path"
        yield f"{condition}get_{kind}(check, from.get{name}(), {member}, {limits_of(field)});"
    elif field.kind == "list":
        yield f"get_list(check, from.get{name}(), {member}, {limits_of(field)});"
    else:
        yield f"get_value(check, from.get{name}(), {member});"
        yield from value_checks(field, member, "kMalformed")
    if "presentIf" in field.marks:
        yield f"if (!{member}.{field.marks['presentIf']}) {member} = {{}};"


def codec_fields(node):
    return [field for field in node.fields if "reserved" not in field.marks]


def encode_lines(node):
    holds = node.marks.get("holds")
    yield f"[[maybe_unused]] static void put([[maybe_unused]] Check& check, [[maybe_unused]] {node.wire()}::Builder to,"
    yield f"                                 [[maybe_unused]] const {node.cpp()}& from) {{"
    if holds:
        yield f"  check.require({holds}(from), Code::kInvalidArgument);"
    yield from (f"  {line}" for field in codec_fields(node) for line in put_lines(field))
    yield "}"
    yield ""


def decode_lines(node):
    holds = node.marks.get("holds")
    yield f"[[maybe_unused]] static void get([[maybe_unused]] Check& check, [[maybe_unused]] {node.wire()}::Reader from,"
    yield f"                                 [[maybe_unused]] {node.cpp()}& to) {{"
    yield from (f"  {line}" for field in codec_fields(node) for line in get_lines(field))
    if holds:
        yield f"  check.require({holds}(to), Code::kMalformed);"
    yield "}"
    yield ""


def union_encode_lines(node):
    wire = node.wire()
    for field in node.alternatives:
        if field.kind != "void":
            yield f"static void put_body(Check& check, {wire}::Builder to, const {field.node.cpp()}& from) {{"
            yield f"  put(check, to.init{capital(field.name)}(), from);"
            yield "}"
    yield ""


def union_decode_lines(node):
    wire, cpp = node.wire(), node.cpp()
    yield f"static void get_body(Check& check, {wire}::Reader from, {cpp}& to) {{"
    yield "  switch (from.which()) {"
    for field in node.alternatives:
        yield f"    case {wire}::{snake(field.name).upper()}:"
        if field.kind == "void":
            yield "      break;"
        else:
            yield f"      return get(check, from.get{capital(field.name)}(), to.emplace<{field.node.cpp()}>());"
    yield "  }"
    yield "  check.require(false, Code::kMalformed);"
    yield "}"
    yield ""


def codec_header(file, source, does, struct_lines_of, union_lines_of):
    structs = [node for node in all_structs(file) if "byHand" not in node.marks]
    yield f"// Made of {source}: {does} its structs. For one source file."
    yield f"namespace {file.marks['namespace']}::wire {{"
    yield ""
    for node in structs:
        if not node.alternatives:
            yield from struct_lines_of(node)
    for node in structs:
        if node.alternatives:
            yield from union_lines_of(node)
    yield f"}}  // namespace {file.marks['namespace']}::wire"


def encode_header(file, source):
    yield from codec_header(file, source, "encodes", encode_lines, union_encode_lines)
    unions = [node for node in all_structs(file) if node.alternatives and "byHand" not in node.marks]
    if not unions:
        return
    yield ""
    yield "namespace stdchk {"
    for node in unions:
        variant = f"{file.marks['namespace']}::Any{node.name}"
        yield f"template class OneOf<{variant}>;"
        types = (field.node.cpp() for field in node.alternatives if field.kind != "void")
        yield from (f"template OneOf<{variant}>::OneOf({name});" for name in types)
    yield "}  // namespace stdchk"


def decode_header(file, source):
    yield from codec_header(file, source, "decodes", decode_lines, union_decode_lines)


# ---- FILE.members.h --------------------------------------------------------------------------------


def members_header(file, source):
    yield f"// Made of {source}: calls `visit` with each member, and a text's limit, in the schema's order."
    yield "#pragma once"
    yield ""
    yield '#include "core/base/limits.h"'
    yield f'#include "{source.removesuffix(".capnp")}.structs.h"'
    yield ""
    yield f"namespace {file.marks['namespace']} {{"
    for node in all_structs(file):
        if node.makes_struct() and not node.alternatives:
            yield ""
            yield "template <class Visit>"
            yield f"void each_member([[maybe_unused]] Visit&& visit, [[maybe_unused]] {node.cpp()}& message) {{"
            fields = [field for field in node.fields if "reserved" not in field.marks]
            for field in fields:
                is_text = field.kind in ("text", "data") and "type" not in field.marks
                limit = field.max() if is_text else "kNoLimit"
                yield f"  visit(message.{field.member}{'' if limit == 'kNoLimit' else ', ' + limit});"
            yield "}"
    yield ""
    yield f"}}  // namespace {file.marks['namespace']}"


def write_if_changed(path, text):
    """Leaves an equal file alone, so that nothing that includes it is compiled again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description="Makes C++ from a schema and its annotations.")
    parser.add_argument("--capnp", default="capnp", help="Cap'n Proto's compiler")
    parser.add_argument("--schema", required=True, help="Cap'n Proto's own schema.capnp")
    parser.add_argument("--root", required=True, type=lambda text: str(pathlib.Path(text).resolve()),
                        help="the folder that imports start from")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the folder of the headers")
    parser.add_argument("files", nargs="+", help="schemas")
    arguments = parser.parse_args()
    arguments.files = [str(pathlib.Path(file).resolve()) for file in arguments.files]
    request = compile_schemas(arguments)
    schema = Schema(request)
    for requested in request["requestedFiles"]:
        file, source = schema.nodes[requested["id"]], requested["filename"]
        stem = pathlib.Path(source).stem
        for kind, make in (("structs", structs_header), ("encode", encode_header), ("decode", decode_header),
                           ("members", members_header)):
            write_if_changed(arguments.out / f"{stem}.{kind}.h", "\n".join(make(file, source)) + "\n")


if __name__ == "__main__":
    main()
