#include "fork/vm/domain.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/units.h"
#include "fork/ticket/program.h"

namespace stdchk::fork::vm {
namespace {

/// An Option is one of QEMU's command line: a word that begins with "-", and its value.
struct Option {
  std::string name;
  std::string value;
  nlohmann::json fields;  ///< of the value, whether it is JSON or KEY=VALUE,...
};

/// Options that are left out.
constexpr std::array<std::string_view, 8> kLeftOut = {
    "-S", "-no-shutdown", "-sandbox", "-mon", "-vnc", "-spice", "-audiodev", "-blockdev"};

/// "virtio-blk-pci,drive=d,id=b": `implied` is the key of a first part without a key.
nlohmann::json fields_of(const std::string& value, const char* implied) {
  if (value.starts_with('{')) return nlohmann::json::parse(value, nullptr, false);
  nlohmann::json fields = nlohmann::json::object();
  for (const std::string& part : split(value, ',')) {
    const auto equals = part.find('=');
    if (equals == std::string::npos)
      fields[implied] = part;
    else
      fields[part.substr(0, equals)] = part.substr(equals + 1);
  }
  return fields;
}

std::string text_of(const nlohmann::json& fields, const char* key) {
  const auto found = fields.find(key);
  return found != fields.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_on(const nlohmann::json& fields, const char* key) {
  const auto found = fields.find(key);
  return found != fields.end() && (*found == true || *found == "on");
}

const char* implied_key(const std::string& option) {
  if (option == "-device") return "driver";
  if (option == "-object") return "qom-type";
  if (option == "-netdev") return "type";
  if (option == "-chardev") return "backend";
  return "";
}

/// A Translation knows which nodes and back ends a command line has, and writes a new one.
class Translation {
 public:
  explicit Translation(std::vector<Option> options) : options_(std::move(options)) {}

  Outcome<std::vector<std::string>> run(const std::string& program) {
    for (const Option& option : options_) remember(option);
    words_ = {program};
    bool has_display = false;
    for (const Option& option : options_) {
      has_display = has_display || option.name == "-display" || option.name == "-nographic";
      if (auto done = translate(option); !done) return problem(done.error());
    }
    if (!has_display) add("-display", "none");
    return words_;
  }

 private:
  void remember(const Option& option) {
    const nlohmann::json& fields = option.fields;
    if (option.name == "-blockdev") nodes_[text_of(fields, "node-name")] = fields;
    if (option.name == "-netdev" && text_of(fields, "type") != "user")
      left_out_.insert("netdev " + text_of(fields, "id"));
    if (option.name == "-chardev" && text_of(fields, "backend") == "socket")
      left_out_.insert("chardev " + text_of(fields, "id"));
    if (option.name == "-audiodev") left_out_.insert("audiodev " + text_of(fields, "id"));
  }

  void add(const std::string& name, const std::string& value) {
    words_.push_back(name);
    if (!value.empty()) words_.push_back(value);
  }

  Outcome<void> translate(const Option& option) {
    const std::string& name = option.name;
    if (std::find(kLeftOut.begin(), kLeftOut.end(), name) != kLeftOut.end()) return {};
    if (name == "-machine") return translate_machine(option.value);
    if (name == "-device") return translate_device(option);
    if (name == "-object") {
      const std::string type = text_of(option.fields, "qom-type");
      if (type == "secret" || type.starts_with("memory-backend")) return {};
    }
    const bool is_back_end = name == "-netdev" || name == "-chardev";
    if (is_back_end && left_out_.contains(name.substr(1) + " " + text_of(option.fields, "id")))
      return {};
    add(name, option.value);
    return {};
  }

  Outcome<void> translate_machine(const std::string& value) {
    std::string kept;
    for (const std::string& part : split(value, ',')) {
      if (part.starts_with("pflash"))
        return problem("The domain has UEFI firmware, which forks cannot keep apart: use BIOS.");
      if (!part.starts_with("memory-backend=")) kept += (kept.empty() ? "" : ",") + part;
    }
    add("-machine", kept);
    return {};
  }

  Outcome<void> translate_device(const Option& option) {
    for (const char* key : {"netdev", "chardev", "audiodev"}) {
      if (left_out_.contains(std::string(key) + " " + text_of(option.fields, key))) return {};
    }
    const std::string node = text_of(option.fields, "drive");
    if (nodes_.contains(node)) {
      auto drive = drive_of(node);
      if (!drive) return problem(drive.error());
      add("-drive", *drive);
    }
    add("-device", option.value);
    return {};
  }

  /// A node of a format lies on a node of a file. The file's own header names its backing files.
  Outcome<std::string> drive_of(const std::string& id) const {
    const nlohmann::json& top = nodes_.at(id);
    const bool has_format = !text_of(top, "file").empty();
    const auto below = nodes_.find(text_of(top, "file"));
    if (has_format && below == nodes_.end())
      return problem(fmt::format("The block node {} has no file.", id));
    const nlohmann::json& file = has_format ? below->second : top;
    const std::string driver = text_of(file, "driver"), path = text_of(file, "filename");
    if ((driver != "file" && driver != "host_device") || path.empty()) {
      return problem(
          fmt::format("The disk {} is of the kind \"{}\": only files can be used.", id, driver));
    }
    if (path.find(',') != std::string::npos)
      return problem(fmt::format("The disk's name {} has a comma.", path));
    const bool is_read_only = is_on(top, "read-only") || is_on(file, "read-only");
    return fmt::format("if=none,id={},file={},format={}{}", id, path,
                       has_format ? text_of(top, "driver") : "raw",
                       is_read_only ? ",readonly=on" : "");
  }

  const std::vector<Option> options_;
  std::map<std::string, nlohmann::json> nodes_;  ///< of -blockdev, by name
  std::set<std::string> left_out_;               ///< back ends, such as "netdev hostnet0"
  std::vector<std::string> words_;
};

/// Takes one character behind a backslash. A line that goes on has no character.
void take_escaped(const std::string& text, std::size_t& at, bool in_quotes, std::string& word) {
  if (++at == text.size() || text[at] == '\n') return;
  const bool is_special = std::string_view("\"\\$`").find(text[at]) != std::string_view::npos;
  if (in_quotes && !is_special) word += '\\';
  word += text[at];
}

}  // namespace

Outcome<std::vector<std::string>> shell_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool has_word = false;
  char quote = 0;
  for (std::size_t at = 0; at < text.size(); at++) {
    const char c = text[at];
    if (c == '\\' && quote != '\'') {
      has_word = has_word || at + 1 == text.size() || text[at + 1] != '\n';
      take_escaped(text, at, quote != 0, word);
    } else if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? '\0' : c;
      has_word = true;
    } else if (quote == 0 && (c == ' ' || c == '\n' || c == '\t')) {
      if (has_word) words.push_back(std::exchange(word, {}));
      has_word = false;
    } else {
      word += c;
      has_word = true;
    }
  }
  if (quote != 0) return problem(fmt::format("A word that begins with {} has no end.", quote));
  if (has_word) words.push_back(word);
  return words;
}

Outcome<std::vector<std::string>> translate_domain(const std::string& text) {
  auto words = shell_words(text);
  if (!words) return problem(words.error());
  // Environment comes first: "LC_ALL=C".
  const auto program = std::find_if(words->begin(), words->end(), [](const std::string& word) {
    return word.find('=') > word.find('/');
  });
  if (program == words->end()) return problem("virsh has printed no command line.");
  std::vector<Option> options;
  for (auto at = std::next(program); at != words->end(); ++at) {
    if (!at->starts_with('-') || at->size() < 2)
      return problem(fmt::format("The word {} of libvirt's command line is not known.", *at));
    Option option{*at, {}, {}};
    if (std::next(at) != words->end() && !std::next(at)->starts_with('-')) option.value = *++at;
    option.fields = fields_of(option.value, implied_key(option.name));
    if (!option.fields.is_object())
      return problem(fmt::format("The value {} of {} is not known.", option.value, option.name));
    options.push_back(std::move(option));
  }
  return Translation(std::move(options)).run(*program);
}

Outcome<std::vector<std::string>> command_of_domain(const std::string& domain) {
  const bool is_file = domain.ends_with(".xml");
  std::error_code error;
  if (is_file && !std::filesystem::exists(domain, error))
    return problem(fmt::format("There is no file {}.", domain));
  auto text =
      output_of({"virsh", "domxml-to-native", "qemu-argv", is_file ? "--xml" : "--domain", domain});
  if (!text) {
    return problem(fmt::format("The program virsh of libvirt has to translate the domain. {}",
                               text.error().text));
  }
  return translate_domain(*text);
}

}  // namespace stdchk::fork::vm
