#pragma once

#include "manager/journal/command.h"
#include "tests/fuzz/choices.h"

namespace stdchk::fuzz {

/// A command of any kind. It names few files, chunks and places, so that commands interact. Now and
/// then a number is arbitrary.
manager::Command make_command(Choices& choices);

}  // namespace stdchk::fuzz
