@0xc2b7e0d94f1a6835;
# Annotations for schemas: core/schema/generate.py makes the plain structs and the codec with them. An
# annotation changes no byte of a message.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("stdchk::schema");

# ---- files -------------------------------------------------------------------------------------

annotation namespace @0x9d5ab1c0e3f74821 (file) :Text;
# The C++ namespace of the plain structs.
annotation include @0xb86f2a97d0c4e513 (file) :Text;
# A header that the plain structs need; may stand several times.
annotation unlimited @0xe41d7c3b95a20f68 (file) :Void;
# For the manager's own journal: texts and lists have no limit, and empty ones are written, too.

# ---- structs and groups ------------------------------------------------------------------------

annotation type @0x8f3e6d21b7c95a04 (struct, group, field) :Text;
# A C++ type that already exists. On a struct or a group it is fully qualified, and no struct is made.
# On a field it is the type of the member, for example "ClientId" for a UInt64.
annotation title @0xa7c4185e02fbd936 (struct) :Text;
# For a request: its name in log lines and metrics.
annotation holds @0xd19b5f6c47e380a2 (struct) :Text;
# A function of core/messages/map_check.h that says whether the values fit together.
annotation ordered @0x96e0ba7d38c1f452 (struct) :Void;
# The struct is compared with <, too.
annotation envelope @0xf27a930d6b8e4c15 (struct) :Void;
# Beside the union, the fields go into a struct of their own: NameEnvelope, with the union as `body`.
annotation byHand @0x845cd3e1f960b72a (struct, group) :Void;
# core/messages/encode.cpp and core/messages/decode.cpp have its codec.

# ---- fields ------------------------------------------------------------------------------------

annotation items @0xc9f01b64a72d85e3 (field) :Text;
# The C++ type of a list's items, where it is not the plain one.
annotation member @0xbb3d92e8475c60f1 (field) :Text;
# The member's name, where it is not the field's name in snake case.
annotation initial @0xe85a7f4d1c2b3690 (field) :Text;
# The member's value in a new struct. Without it: 0, false, empty, or an enum's first valid value.
annotation max @0x91c6e2b05f7ad348 (field) :Text;
# The most items of a list, or bytes of a text or of data: a name of core/base/limits.h. Every list and
# text needs one, but for those of files that are `unlimited`.
annotation itemMax @0xd4e7830b9c615fa2 (field) :Text;
# The limit of bytes of each text in a list.
annotation anyBytes @0xa05d1f7e3b94c826 (field) :Void;
# Data may contain the byte 0. Without it, data are a name or a path, and the byte 0 is refused.
annotation required @0x8b62f9c4d7015ea3 (field) :Void;
# 0 is not valid.
annotation below @0xf3d80a5c6b927e14 (field) :Text;
# Only smaller values are valid; a C++ expression.
annotation presentIf @0x9a1e4c70f5b3d268 (field) :Text;
# The field is written only if this part of the member, for example its id, is set. The decoder resets
# a member without it to its initial value.
annotation optional @0xe6b9275d0af8c341 (field) :Void;
# The member is a std::optional of the struct.
annotation reserved @0xb0f4d86e219c7a53 (field) :Void;
# The number is taken, but has no member: the encoder leaves it out, the decoder ignores it.
