#pragma once

#include "manager/command.h"
#include "tests/fuzz/choices.h"

namespace stdchk::fuzz {

/// A command of any kind, about few files, chunks and places, so that commands meet. Now and then a
/// number is any number.
manager::Command make_command(Choices& choices);

}  // namespace stdchk::fuzz
