#include "examples/heat/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

namespace heat {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

/// The header of an image. The rows of the block follow, as doubles of this machine.
struct Header {
  char magic[8] = {'H', 'E', 'A', 'T', '3', 'D', '0', '1'};
  std::int32_t ranks[3] = {};
  std::int32_t position[3] = {};
  std::int32_t cells = 0;
  std::int32_t reserved = 0;
  std::uint64_t step = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(Header) == 56);

Header make_header(const Solver& solver, std::uint64_t step, std::uint64_t checksum) {
  Header header;
  std::copy(solver.ranks().begin(), solver.ranks().end(), header.ranks);
  std::copy(solver.position().begin(), solver.position().end(), header.position);
  header.cells = solver.cells();
  header.step = step;
  header.checksum = checksum;
  return header;
}

std::string failed(const char* what, const std::string& path) {
  return std::string(what) + " " + path + ": " + std::strerror(errno);
}

/// Collects bytes and writes them in pieces of kPieceBytes.
class PieceWriter {
 public:
  PieceWriter(int fd, std::uint64_t kill_after) : fd_(fd), kill_after_(kill_after) {
    piece_.reserve(kPieceBytes);
  }
  bool put(const void* data, std::size_t length) {
    const char* bytes = static_cast<const char*>(data);
    while (length > 0) {
      const std::size_t part = std::min(length, kPieceBytes - piece_.size());
      piece_.insert(piece_.end(), bytes, bytes + part);
      bytes += part;
      length -= part;
      if (piece_.size() == kPieceBytes && !flush()) return false;
    }
    return true;
  }
  bool flush() {
    std::size_t done = 0;
    while (done < piece_.size()) {
      const ssize_t n = ::write(fd_, piece_.data() + done, piece_.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      done += static_cast<std::size_t>(n);
      written_ += static_cast<std::uint64_t>(n);
      if (kill_after_ > 0 && written_ >= kill_after_) ::raise(SIGKILL);
    }
    piece_.clear();
    return true;
  }

 private:
  int fd_;
  std::uint64_t kill_after_;
  std::uint64_t written_ = 0;
  std::vector<char> piece_;
};

bool read_all(int fd, void* data, std::size_t length) {
  char* bytes = static_cast<char*>(data);
  while (length > 0) {
    const ssize_t n = ::read(fd, bytes, std::min(length, kPieceBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    length -= static_cast<std::size_t>(n);
  }
  return true;
}

std::string read_open_image(Solver& solver, int fd, const std::string& path, std::uint64_t step) {
  Header header;
  if (!read_all(fd, &header, sizeof(header))) return path + " is shorter than its header";
  const Header expected = make_header(solver, step, header.checksum);
  if (std::memcmp(&header, &expected, sizeof(header)) != 0) {
    return path + " is of another run or shape";
  }
  for (int i = 0; i < solver.row_count(); ++i) {
    auto row = solver.row(i);
    if (!read_all(fd, row.data(), row.size_bytes())) return path + " is too short";
  }
  char more = 0;
  if (::read(fd, &more, 1) != 0) return path + " is too long";
  solver.set_step(step);
  if (state_checksum(solver) != header.checksum) return path + " does not match its checksum";
  return "";
}

/// The step that the pool's link names; 0: no link.
std::uint64_t latest_step(const std::string& directory) {
  char target[64] = "";
  unsigned long long step = 0;
  if (::readlink((directory + "/latest").c_str(), target, sizeof(target) - 1) < 0) return 0;
  return std::sscanf(target, "heat.*.T%llu", &step) == 1 ? step : 0;
}

}  // namespace

std::string image_path(const std::string& directory, int rank, std::uint64_t step) {
  return directory + "/heat.N" + std::to_string(rank) + ".T" + std::to_string(step);
}

std::uint64_t image_bytes(const Solver& solver) {
  return sizeof(Header) + static_cast<std::uint64_t>(solver.row_count()) *
                              static_cast<std::uint64_t>(solver.cells()) * sizeof(double);
}

std::string write_image(const Solver& solver, const std::string& directory, int rank,
                        const Kill& kill) {
  const std::string path = image_path(directory, rank, solver.step());
  const std::uint64_t checksum = state_checksum(solver);
  const bool killed = kill.step != 0 && kill.step == solver.step();
  if (killed && kill.bytes == 0) ::raise(SIGKILL);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return failed("open", path);
  const Header header = make_header(solver, solver.step(), checksum);
  PieceWriter writer(fd, killed ? kill.bytes : 0);
  bool good = writer.put(&header, sizeof(header));
  for (int i = 0; good && i < solver.row_count(); ++i) {
    const auto row = solver.row(i);
    good = writer.put(row.data(), row.size_bytes());
  }
  if (!good || !writer.flush()) {
    std::string why = failed("write", path);
    ::close(fd);
    return why;
  }
  if (::close(fd) != 0) return failed("close", path);
  return "";
}

std::string read_image(Solver& solver, const std::string& directory, int rank, std::uint64_t step) {
  const std::string path = image_path(directory, rank, step);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("open", path);
  std::string why = read_open_image(solver, fd, path, step);
  ::close(fd);
  return why;
}

std::vector<std::uint64_t> complete_steps(const std::string& directory, int ranks) {
  std::map<std::uint64_t, int> found;
  DIR* folder = ::opendir(directory.c_str());
  if (folder == nullptr) return {};
  while (const dirent* entry = ::readdir(folder)) {
    int rank = 0;
    unsigned long long step = 0;
    int end = 0;
    if (std::sscanf(entry->d_name, "heat.N%d.T%llu%n", &rank, &step, &end) == 2 &&
        entry->d_name[end] == '\0' && rank >= 0 && rank < ranks) {
      ++found[step];
    }
  }
  ::closedir(folder);
  std::vector<std::uint64_t> steps;
  for (auto newest = found.rbegin(); newest != found.rend(); ++newest) {
    if (newest->second == ranks) steps.push_back(newest->first);
  }
  const auto latest = std::ranges::find(steps, latest_step(directory));
  if (latest != steps.end()) std::rotate(steps.begin(), latest, latest + 1);
  return steps;
}

std::uint64_t state_checksum(const Solver& solver) {
  std::uint64_t sum = 0xCBF29CE484222325ULL ^ solver.step();
  for (int i = 0; i < solver.row_count(); ++i) {
    for (double value : solver.row(i)) {
      sum = std::rotl(sum ^ std::bit_cast<std::uint64_t>(value), 29) * 0x9E3779B97F4A7C15ULL;
    }
  }
  return sum;
}

}  // namespace heat
