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

/// Prints one indented JSON value. Repairs names that are not UTF-8.
void print(const nlohmann::json& json);

/// Prints rows of text in aligned columns; the columns in `right` are aligned right.
void print_table(const std::vector<std::vector<std::string>>& rows,
                 const std::vector<std::size_t>& right);

}  // namespace stdchk::tools
