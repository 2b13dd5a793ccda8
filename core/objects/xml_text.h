#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The answers of S3 are short XML documents without namespaces' prefixes, comments or CDATA. These
/// functions find elements in them by name. They accept any bytes.
namespace stdchk {

/// Returns the content of each element `name`, in their order. Elements of one name do not nest.
std::vector<std::string_view> xml_elements(std::string_view xml, std::string_view name);
/// Returns the text of the first element `name`, with its entities decoded.
std::optional<std::string> xml_text(std::string_view xml, std::string_view name);
/// Returns the text with &, <, > and " as entities.
std::string xml_escaped(std::string_view text);

}  // namespace stdchk
