#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace stdchk::tools {

std::string_view type_name(FileType type);
/// Local time, "2008-06-17 10:00:00".
std::string time_text(std::int64_t time_ns);

/// What is said about a file in every JSON answer.
nlohmann::json to_json(const std::string& path, const Attributes& attributes);

/// Prints JSON as it is read by programs: indented, one value. Names that are not UTF-8 are
/// repaired.
void print(const nlohmann::json& json);

/// Rows of text whose columns are lined up; those named in `right` to the right.
void print_table(const std::vector<std::vector<std::string>>& rows,
                 const std::vector<std::size_t>& right);

}  // namespace stdchk::tools
