#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/values/types.h"

namespace stdchk::tools {

std::string_view type_name(FileType type);
/// Local time, such as "2008-06-17 10:00:00".
std::string time_text(std::int64_t time_ns);

/// A file's fields in every JSON answer.
nlohmann::json to_json(const std::string& path, const Attributes& attributes);

/// Prints one indented JSON value. A byte of a name that is not UTF-8 becomes \udcXX, where XX is
/// the byte's number. Python's os.fsencode() gives the name back (PEP 383).
void print(const nlohmann::json& json);
std::string to_text(const nlohmann::json& json);

/// Returns the text for a terminal. Quotes a text with control characters as a shell reads it
/// ($'...'): no name may change the terminal.
std::string shown(const std::string& text);

/// Returns a message for a terminal: like shown(), without quotes. Lines stay lines.
std::string shown_message(std::string_view text);

/// Prints rows of text in aligned columns; the columns in `right` are aligned right.
void print_table(const std::vector<std::vector<std::string>>& rows,
                 const std::vector<std::size_t>& right);

}  // namespace stdchk::tools
