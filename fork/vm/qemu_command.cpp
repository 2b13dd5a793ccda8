#include "fork/vm/qemu_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/units.h"
#include "fork/process/family_network.h"

namespace stdchk::fork::vm {
namespace {

struct Refused {
  std::string_view option;
  std::string_view why;
};
constexpr std::array<Refused, 9> kRefused = {{
    {"-incoming", "stdchk itself gives forks their state"},
    {"-daemonize", "stdchk itself runs the machine in the background"},
    {"-pidfile", "all forks would write the same file"},
    {"-mem-path", "stdchk itself places the memory"},
    {"-mem-prealloc", "forks would fetch all memory"},
    {"-numa", "machines with several memory nodes are not supported"},
    {"-blockdev", "only -drive file=... is supported: its forks get overlays"},
    {"-hda", "only -drive file=... is supported: its forks get overlays"},
    {"-snapshot", "forks have overlays of their own"},
}};

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

/// "512", "512M", "2G", "size=2G,slots=1".
std::optional<std::uint64_t> memory_of(const std::string& value) {
  std::string size = split(value, ',').empty() ? "" : split(value, ',')[0];
  if (size.starts_with("size=")) size.erase(0, 5);
  if (size.find_first_not_of("0123456789") == std::string::npos) size += "M";
  const auto bytes = parse_bytes(size);
  if (!bytes || *bytes == 0 || *bytes % (1 << 20) != 0) return std::nullopt;
  return *bytes;
}

constexpr std::string_view kBalloon = "virtio-balloon-pci,id=stdchk-balloon,free-page-reporting=on";

/// Lets a balloon device report free pages: "virtio-balloon-pci,id=b", or the same in JSON.
void let_report(std::string& device) {
  if (device.find("free-page-reporting") != std::string::npos) return;
  if (device.starts_with("virtio-balloon")) device += ",free-page-reporting=on";
  if (!device.starts_with('{')) return;
  auto fields = nlohmann::json::parse(device, nullptr, false);
  if (!fields.is_object()) return;
  fields["free-page-reporting"] = true;
  device = fields.dump();
}

struct Drive {
  std::string file;
  bool is_writable = true;
};
Drive drive_of(const std::string& value) {
  Drive drive;
  for (const std::string& part : split(value, ',')) {
    if (part.starts_with("file=")) drive.file = part.substr(5);
    if (part == "readonly=on" || part == "readonly" || part == "media=cdrom")
      drive.is_writable = false;
  }
  return drive;
}

/// Returns `value` with its file replaced by the qcow2 file `overlay`.
std::string with_overlay(const std::string& value, const std::string& overlay) {
  std::string changed = "file=" + overlay + ",format=qcow2";
  for (const std::string& part : split(value, ',')) {
    if (!part.starts_with("file=") && !part.starts_with("format=")) changed += "," + part;
  }
  return changed;
}

}  // namespace

Outcome<QemuCommand> QemuCommand::parse(std::vector<std::string> words) {
  const auto refuse = [](const std::string& text) { return problem(text); };
  if (words.empty()) return refuse("A command line of QEMU is needed behind \"--\".");
  QemuCommand command;
  for (std::size_t i = 1; i < words.size(); i++) {
    const bool has_value = i + 1 < words.size();
    const std::string& word = words[i];
    for (const Refused& refused : kRefused) {
      if (word == refused.option)
        return refuse(fmt::format("{} cannot be used: {}.", word, refused.why));
    }
    if (!has_value) continue;
    const std::string& value = words[i + 1];
    if (word == "-m") {
      const auto bytes = memory_of(value);
      if (!bytes) return refuse(fmt::format("-m {} is no size in whole MiB.", value));
      command.memory_bytes_ = *bytes;
    } else if (word == "-device" && value.find("balloon") != std::string::npos) {
      let_report(words[i + 1]);
      command.has_balloon_ = true;
    } else if (word == "-object" && value.starts_with("memory-backend")) {
      return refuse("A memory backend cannot be given: stdchk itself places the memory.");
    } else if (word == "-drive") {
      const Drive drive = drive_of(value);
      if (drive.file.empty()) return refuse(fmt::format("-drive {} names no file.", value));
      if (drive.is_writable) command.drives_.push_back(drive.file);
    }
  }
  command.words_ = std::move(words);
  return command;
}

void QemuCommand::add_balloon() {
  if (has_balloon_) return;
  words_.insert(words_.end(), {"-device", std::string(kBalloon)});
  has_balloon_ = true;
}

std::vector<std::string> QemuCommand::at(const Place& place) const {
  std::vector<std::string> out;
  bool has_machine = false;
  std::size_t drives = 0;
  for (std::size_t i = 0; i < words_.size(); i++) {
    const std::string& option = i > 0 ? words_[i - 1] : words_[0];
    std::string word = replaced(words_[i], "{id}", std::to_string(place.id));
    if (i > 0 && (option == "-M" || option == "-machine")) {
      word += ",memory-backend=stdchk-ram";
      has_machine = true;
    } else if (i > 0 && option == "-drive" && drive_of(word).is_writable &&
               drives < place.drives.size()) {
      word = with_overlay(word, place.drives[drives++]);
    }
    out.push_back(std::move(word));
  }
  const auto add = [&](std::initializer_list<std::string> more) { out.insert(out.end(), more); };
  if (!has_machine) add({"-machine", "pc,memory-backend=stdchk-ram"});
  add({"-object", fmt::format("memory-backend-file,id=stdchk-ram,size={}M,mem-path={},share={}",
                              memory_bytes_ >> 20, place.memory_file,
                              place.memory == Memory::kShared ? "on" : "off")});
  add({"-qmp", fmt::format("unix:{}/qmp,server=on,wait=off", place.folder)});
  add({"-chardev",
       fmt::format("socket,id=stdchk-agent,path={}/agent,server=on,wait=off", place.folder)});
  add({"-device", "virtio-serial-pci,id=stdchk-serial", "-device",
       "virtserialport,bus=stdchk-serial.0,chardev=stdchk-agent,name=stdchk.fork.0"});
  if (place.port.tap >= 0) {
    add({"-netdev", fmt::format("tap,id=stdchk-net,fd={}", place.port.tap), "-device",
         fmt::format("virtio-net-pci,id=stdchk-nic,netdev=stdchk-net,mac={},host_mtu={},romfile=",
                     place.port.hardware_address, FamilyNetwork::kMtu)});
  }
  if (place.waits_for_state) add({"-incoming", "defer"});
  return out;
}

}  // namespace stdchk::fork::vm
