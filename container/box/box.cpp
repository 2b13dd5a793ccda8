#include "container/box/box.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <thread>

#include "container/box/processes.h"
#include "container/init/files.h"
#include "container/init/modes.h"
#include "container/layers/archive.h"
#include "core/base/mutex.h"

namespace stdchk::container {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kOutputBytesMax = 60'000;
constexpr std::uint32_t kSignalled = 128;
constexpr auto kSettleTurn = std::chrono::milliseconds(5);
constexpr mode_t kForAll = 01777;
constexpr std::size_t kAskBytesMax = 16'384;
/// Most bytes of requests in one message, which also carries the program's output.
constexpr std::size_t kAsksBytesMax = 65'536;

std::uint64_t number_in(const std::string& text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Returns the names of the complete files in a folder. A file under construction is NAME.new.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    std::string name = entry.path().filename();
    if (!name.ends_with(".new")) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

Outcome<void> write_shared(const std::string& path, const std::string& text) {
  if (!write_text(path, text)) return problem(errno_text(path));
  return {};
}

/// Joins the words; `separator` follows each word, the last one, too.
std::string joined(const std::vector<std::string>& words, char separator) {
  std::string text;
  for (const auto& word : words) text += word + separator;
  return text;
}

}  // namespace

Box::Box(const BoxSettings& settings, std::uint32_t number)
    : settings_(settings),
      number_(number),
      folder_(fmt::format("{}/box-{}", settings.folder, number)),
      upper_(folder_ + "/upper"),
      root_(folder_ + "/root"),
      image_(folder_ + "/image"),
      lazy_(folder_ + "/lazy"),
      network_(settings.tag, number),
      group_(settings.tag, number) {}

Outcome<void> Box::make_folders() const {
  for (const std::string& path : {folder_, upper_, folder_ + "/work", root_}) {
    if (::mkdir(path.c_str(), 0755) != 0) return problem(errno_text(path));
  }
  return {};
}

Outcome<void> Box::write_settings(const BoxDescription& description) const {
  const std::string shared = upper_ + "/.stdchk";
  for (const char* const folder : {"", "/commands", "/ended", "/asks", "/taken", "/results"}) {
    if (::mkdir((shared + folder).c_str(), 0755) != 0) return problem(errno_text(shared + folder));
  }
  // Agents run as the job's user.
  ::chmod((shared + "/asks").c_str(), kForAll);
  std::error_code error;
  fs::copy_file(settings_.init, shared + "/init", error);
  if (error) return problem(settings_.init + ": " + error.message());
  for (const char* const name : {"/agent", "/checkpoint"}) {
    if (::symlink("init", (shared + name).c_str()) != 0) return problem(errno_text(shared + name));
  }
  ::mkdir((upper_ + "/etc").c_str(), 0755);
  const std::string host_lines = "127.0.0.1 localhost\n" + joined(description.hosts, '\n');
  for (const auto& [path, text] : std::vector<std::pair<std::string, std::string>>{
           {upper_ + kEnvironment, joined(description.environment, '\0')},
           {upper_ + kFolder, description.directory},
           {upper_ + kUser, fmt::format("{} {}", description.user, description.group)},
           {shared + "/hosts", description.host_file},
           {upper_ + "/etc/hosts", host_lines},
           {upper_ + "/etc/hostname", description.host_name + "\n"}}) {
    if (auto done = write_shared(path, text); !done) return done;
  }
  return {};
}

Outcome<void> Box::mount(const BoxDescription& description) const {
  const std::string options =
      fmt::format("lowerdir={},upperdir={},workdir={}/work", description.root, upper_, folder_);
  if (::mount("overlay", root_.c_str(), "overlay", 0, options.c_str()) != 0) {
    return problem(errno_text(fmt::format("the overlay of {} on {}", upper_, description.root)));
  }
  return {};
}

Outcome<void> Box::start(const BoxDescription& description, const JobNetwork& network) {
  remove();
  if (auto done = make_folders(); !done) return done;
  if (auto done = write_settings(description); !done) return done;
  if (auto done = mount(description); !done) return done;
  if (auto done = network_.make(network, description.address, false); !done) return done;
  auto entered = run_program(
      {.words = {settings_.init, "enter", root_, network_.path(), description.host_name}});
  if (!entered) return problem(std::move(entered.error()));
  init_ = static_cast<pid_t>(number_in(*entered));
  if (init_ <= 0) return problem("stdchk-box-init has named no process: " + *entered);
  if (auto done = group_.make(description.limits); !done) return done;
  return group_.add(init_);
}

Outcome<void> Box::stop(Duration deadline) const {
  // CRIU would leave absent pages out of an image.
  if (memory_ && memory_->is_loading()) {
    return problem("its memory is still being loaded from the pool, so it cannot be saved yet");
  }
  return stop_processes(init_, deadline);
}

Outcome<void> Box::settle(Duration deadline) const {
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    const auto under_way = network_.unacknowledged();
    if (!under_way) return problem(under_way.error());
    if (*under_way == 0 || std::chrono::steady_clock::now() >= end) return {};
    std::this_thread::sleep_for(kSettleTurn);
  }
}

Outcome<void> Box::lock() const { return network_.lock(); }

Outcome<void> Box::open() const {
  if (auto done = network_.open(); !done) return done;
  return network_.announce();
}

void Box::resume() const {
  // Announce the address again: switches may have dropped the packet that open() sent.
  (void)network_.announce();
  continue_processes(init_);
}

Outcome<std::uint64_t> Box::save(Duration deadline) {
  discard();
  memory_.reset();
  cancelled_ = false;
  if (::mkdir(image_.c_str(), 0700) != 0) return problem(errno_text(image_));
  if (auto done = settings_.criu.dump(init_, image_, network_.path(), deadline); !done) {
    return problem(std::move(done.error()));
  }
  if (auto done = pack_changes(upper_, image_ + "/upper.tar", deadline); !done) {
    return problem(std::move(done.error()));
  }
  return bytes_in(image_);
}

Outcome<std::uint64_t> Box::store(const std::string& path, Duration deadline) {
  const MutexLock lock(image_mutex_);
  auto bytes = pack_image(image_, path, deadline, cancelled_);
  std::error_code ignored;
  fs::remove_all(image_, ignored);
  return bytes;
}

void Box::discard() {
  cancel_store();
  const MutexLock lock(image_mutex_);
  std::error_code ignored;
  fs::remove_all(image_, ignored);
}

Outcome<std::uint64_t> Box::load(const BoxDescription& description, const JobNetwork& network,
                                 const std::string& path, Duration deadline) {
  remove();
  if (auto done = make_folders(); !done) return problem(std::move(done.error()));
  const bool lazy = network.description().lazy;
  const std::string& images = lazy ? lazy_ : image_;
  if (auto done = unpack(path, lazy, deadline); !done) return problem(std::move(done.error()));
  const std::uint64_t bytes = bytes_in(images);
  if (auto done = unpack_changes(images + "/upper.tar", upper_, deadline); !done) {
    return problem(std::move(done.error()));
  }
  if (auto done = mount(description); !done) return problem(std::move(done.error()));
  if (auto done = network_.make(network, description.address, true); !done) {
    return problem(std::move(done.error()));
  }
  auto restored = settings_.criu.restore(images, root_, network_.path(), deadline, lazy);
  if (!restored) return problem(std::move(restored.error()));
  init_ = *restored;
  if (memory_) {
    if (auto done = memory_->guard(init_); !done) return problem(std::move(done.error()));
  }
  if (auto done = group_.make(description.limits); !done) return problem(std::move(done.error()));
  if (auto done = group_.add(init_); !done) return problem(std::move(done.error()));
  discard();
  return bytes;
}

/// Makes the folder of CRIU's images.
Outcome<void> Box::unpack(const std::string& path, bool lazy, Duration deadline) {
  const std::string& images = lazy ? lazy_ : image_;
  if (::mkdir(images.c_str(), 0700) != 0) return problem(errno_text(images));
  if (!lazy) return unpack_image(path, images, deadline);
  auto started = LazyMemory::start(settings_.criu, images, path, deadline);
  if (!started) return problem(std::move(started.error()));
  memory_ = std::move(*started);
  return {};
}

void Box::remove() {
  discard();
  if (init_ > 0) kill_processes(init_);
  init_ = 0;
  memory_.reset();
  group_.remove();
  network_.remove();
  while (::umount2(root_.c_str(), MNT_DETACH) == 0) {
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::optional<std::uint32_t> Box::exit_status() {
  if (init_ <= 0) return 0;
  int status = 0;
  const pid_t ended = ::waitpid(init_, &status, WNOHANG);
  if (ended == 0) return std::nullopt;
  init_ = 0;
  if (ended < 0) return kSignalled;
  return WIFSIGNALED(status) ? kSignalled + static_cast<std::uint32_t>(WTERMSIG(status))
                             : static_cast<std::uint32_t>(WEXITSTATUS(status));
}

Outcome<void> Box::give_command(std::uint64_t number, const std::string& words) const {
  return write_shared(fmt::format("{}/{}", in_box(kCommands), number), words);
}

Outcome<void> Box::answer(const std::string& word, std::uint64_t number) const {
  return write_shared(in_box(kAnswer), fmt::format("{} {}", word, number));
}

std::uint64_t Box::newest_request() const {
  return number_in(read_text(in_box(kRequest), kAskBytesMax));
}

std::vector<std::pair<std::uint64_t, std::uint32_t>> Box::ended_commands() const {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> out;
  const std::string folder = in_box(kEnded);
  for (const std::string& name : names_in(folder)) {
    out.emplace_back(number_in(name),
                     static_cast<std::uint32_t>(number_in(read_text(folder + "/" + name))));
  }
  return out;
}

std::vector<std::string> Box::asks() const {
  std::vector<std::string> out;
  const std::string folder = in_box(kAsks);
  std::size_t bytes = 0;
  for (const std::string& name : names_in(folder)) {
    std::string text = read_text(folder + "/" + name, kAskBytesMax);
    // A space ends the name in the message.
    if (text.empty() || name.find(' ') != std::string::npos) continue;
    bytes += name.size() + text.size();
    if (bytes > kAsksBytesMax) break;
    out.push_back(name + " " + std::move(text));
  }
  return out;
}

Outcome<void> Box::take_ask(const std::string& name) const {
  const std::string from = in_box(kAsks) + "/" + name;
  const std::string to = in_box("/.stdchk/taken/") + name;
  if (::rename(from.c_str(), to.c_str()) != 0) return problem(errno_text(from));
  return {};
}

Outcome<void> Box::end_ask(const std::string& name, std::uint64_t status) const {
  // A refused ask is still in its folder.
  ::unlink((in_box(kAsks) + "/" + name).c_str());
  return write_shared(in_box(kResults) + "/" + name, std::to_string(status));
}

std::string Box::output(bool errors, std::uint64_t from) const {
  const std::string path = in_box(errors ? "/.stdchk/err.0" : "/.stdchk/out.0");
  // Root of the container may have put a FIFO there.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return {};
  std::string text(kOutputBytesMax, '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), static_cast<off_t>(from));
  ::close(fd);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

}  // namespace stdchk::container
