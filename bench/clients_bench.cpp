// Measures several client processes that write images into a pool at once: their total rate and its
// fairness. With --latency, measures how long one client waits for small writes and commits. Prints
// JSON.
//
// Each client is a separate process. A round begins when all are connected; each client's time is
// from its open until its close has returned. The total rate is all bytes over the slowest client's
// time. Fairness is the rate of the slowest client over that of the fastest.
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/measuring.h"
#include "bench/pool.h"
#include "client/api/filesystem.h"
#include "core/base/limits.h"
#include "core/runtime/options.h"
#include "transport/choice/factory.h"

namespace stdchk::bench {
namespace {

using Timer = std::chrono::steady_clock;

constexpr std::size_t kStep = limits::kMiB;  ///< of one write call
constexpr std::size_t kSmall = 4 * limits::kKiB;

struct Settings {
  std::string state;
  Pool pool;
  std::string transport = "auto";
  std::uint64_t image_bytes = 256 * limits::kMiB;
  std::uint32_t clients = 8;
  std::uint32_t images = 1;
  std::uint32_t rounds = 5;
  std::uint32_t latency = 0;  ///< small images of each round; 0: measures rates
  std::string namespaces;     ///< paths of network namespaces, which clients use in turn
};

std::unique_ptr<client::Filesystem> connect(const Settings& settings) {
  client::Options options;
  options.manager_address = settings.pool.manager;
  options.keyring = settings.pool.keyring;
  options.transport = settings.transport;
  options.naming = Naming::kOff;
  return must(client::Filesystem::connect(options));
}

std::unique_ptr<client::File> create(client::Filesystem& filesystem, const std::string& name) {
  client::OpenFlags flags;
  flags.write = flags.create = flags.exclusive = true;
  return must(filesystem.create(kRootFile, name, flags, client::Owner{}));
}

/// Moves this process into the network namespace of client `number`.
void enter_network(const Settings& settings, std::uint32_t number) {
  std::istringstream words(settings.namespaces);
  const std::vector<std::string> paths{std::istream_iterator<std::string>(words), {}};
  if (paths.empty()) return;
  const int fd = ::open(paths[number % paths.size()].c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0) give_up("a network namespace cannot be entered");
  ::close(fd);
}

double seconds_since(Timer::time_point start) {
  return std::chrono::duration<double>(Timer::now() - start).count();
}

// ---- rates ------------------------------------------------------------------------------------

/// A Client is a process that writes its images on request.
class Client {
 public:
  Client(const Settings& settings, std::uint32_t number) {
    std::array<int, 2> orders{};
    std::array<int, 2> answers{};
    if (::pipe(orders.data()) != 0 || ::pipe(answers.data()) != 0) give_up("no pipe can be had");
    pid_ = ::fork();
    if (pid_ < 0) give_up("no process can be had");
    if (pid_ == 0) {
      ::close(orders[1]);
      ::close(answers[0]);
      serve(settings, number, orders[0], answers[1]);
      ::_exit(0);
    }
    ::close(orders[0]);
    ::close(answers[1]);
    orders_ = orders[1];
    answers_ = answers[0];
  }
  Client(Client&& other) noexcept
      : pid_(other.pid_), orders_(other.orders_), answers_(other.answers_) {
    other.pid_ = 0;
  }
  ~Client() {
    if (pid_ == 0) return;
    tell(kEnd);
    ::waitpid(pid_, nullptr, 0);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  pid_t pid() const { return pid_; }
  void begin() const { tell(kWrite); }
  /// The seconds of the client's write; the first answer means that it is connected.
  double answer() const {
    double seconds = 0;
    if (::read(answers_, &seconds, sizeof(seconds)) != sizeof(seconds))
      give_up("a client has ended");
    return seconds;
  }

 private:
  static void serve(const Settings& settings, std::uint32_t number, int orders, int answers) {
    enter_network(settings, number);
    const MutableByteSpan image = random_memory(settings.image_bytes, number + 1);
    const auto filesystem = connect(settings);
    const auto say = [&](double seconds) {
      if (::write(answers, &seconds, sizeof(seconds)) != sizeof(seconds)) ::_exit(1);
    };
    say(0);
    std::uint64_t round = 0;
    for (char word = 0; ::read(orders, &word, 1) == 1 && word == kWrite;) {
      change_pages(image, ++round * 1000 + number);
      std::vector<std::string> names;
      const auto start = Timer::now();
      for (std::uint32_t i = 0; i < settings.images; ++i) {
        names.push_back("client" + std::to_string(number) + ".N" + std::to_string(i) + ".T" +
                        std::to_string(round));
        auto file = create(*filesystem, names.back());
        for (std::uint64_t at = 0; at < image.size(); at += kStep) {
          must(file->write(at, image.subspan(at, std::min(kStep, image.size() - at))));
        }
        must(file->close());
      }
      say(seconds_since(start));
      for (const auto& name : names) must(filesystem->remove(kRootFile, name, false));
    }
  }

  void tell(char word) const {
    if (::write(orders_, &word, 1) != 1) give_up("a client has ended");
  }

  static constexpr char kWrite = 'w';
  static constexpr char kEnd = 'e';

  pid_t pid_ = 0;
  int orders_ = -1;
  int answers_ = -1;
};

void measure_rates(const Settings& settings) {
  std::vector<Client> clients;
  for (std::uint32_t i = 0; i < settings.clients; ++i) clients.emplace_back(settings, i);
  std::vector<pid_t> pids;
  for (const Client& each : clients) {
    (void)each.answer();
    pids.push_back(each.pid());
  }
  const double bytes = static_cast<double>(settings.image_bytes) * settings.images;
  std::vector<double> together;
  std::vector<double> fairness;
  std::vector<double> cpu;
  std::vector<double> client_cpu;
  for (std::uint32_t round = 0; round <= settings.rounds; ++round) {
    const double there = cpu_seconds(settings.pool.benefactors);
    const double here = cpu_seconds(pids);
    for (const Client& each : clients) each.begin();
    std::vector<double> took;
    took.reserve(clients.size());
    for (const Client& each : clients) took.push_back(each.answer());
    if (round == 0) continue;  // the first round warms up
    const auto [fastest, slowest] = std::ranges::minmax(took);
    const double gigabytes = bytes * settings.clients / 1e9;
    together.push_back(gigabytes / slowest);
    fairness.push_back(fastest / slowest);
    cpu.push_back((cpu_seconds(settings.pool.benefactors) - there) / gigabytes);
    client_cpu.push_back((cpu_seconds(pids) - here) / gigabytes);
  }
  const nlohmann::json out{{"gb_per_s", together},
                           {"slowest_over_fastest", fairness},
                           {"benefactor_cpu_s_per_gb", cpu},
                           {"client_cpu_s_per_gb", client_cpu},
                           {"taken", wall_seconds()}};
  std::printf("%s\n", out.dump().c_str());
}

// ---- latency ----------------------------------------------------------------------------------

/// A percentile in microseconds.
double percentile(std::vector<double> seconds, std::size_t percent) {
  std::ranges::sort(seconds);
  return seconds[std::min(seconds.size() * percent / 100, seconds.size() - 1)] * 1e6;
}

void measure_latency(const Settings& settings) {
  const auto filesystem = connect(settings);
  std::vector<std::byte> block(kSmall);
  nlohmann::json out;
  for (std::uint32_t round = 0; round <= settings.rounds; ++round) {
    std::vector<double> stored;
    std::vector<double> committed;
    for (std::uint32_t i = 0; i < settings.latency; ++i) {
      fill_random(block, round * std::uint64_t{1000000} + i);
      const std::string name = "latency.N0.T" + std::to_string(i);
      auto file = create(*filesystem, name);
      const auto start = Timer::now();
      must(file->write(0, block));
      must(file->sync());  // of an image: waits until its bytes are stored, without a commit
      stored.push_back(seconds_since(start));
      const auto closing = Timer::now();
      must(file->close());
      committed.push_back(seconds_since(closing));
      must(filesystem->remove(kRootFile, name, false));
    }
    if (round == 0) continue;  // the first round warms up
    for (const auto& [what, seconds] :
         {std::pair{"stored", stored}, std::pair{"committed", committed}}) {
      out[what]["median_us"].push_back(percentile(seconds, 50));
      out[what]["p99_us"].push_back(percentile(seconds, 99));
    }
  }
  out["taken"] = wall_seconds();
  std::printf("%s\n", out.dump().c_str());
}

}  // namespace
}  // namespace stdchk::bench

int main(int argc, char** argv) {
  using namespace stdchk;
  bench::Settings settings;
  Options options("clients-bench", "Measures clients that write at once, or how long one waits.");
  options.argument("STATE", settings.state, "state directory of a pool that runs here").required();
  options.choice("--transport", settings.transport, transport::choices(), "how bytes move");
  options.count("--clients", settings.clients, 1, 1000, "processes that write at once");
  options.count("--images", settings.images, 1, 10000, "of each client and round, one by one");
  options.size("--size", settings.image_bytes, limits::kMiB, limits::kGiB * 64, "of each image");
  options.count("--rounds", settings.rounds, 1, 1000, "that count; one more goes before them");
  options.count("--latency", settings.latency, 0, 100000,
                "measure so many images of 4 KiB a round instead");
  options.text("--namespaces", settings.namespaces, "PATH...",
               "network namespaces that the clients run in, in turns");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  settings.pool = bench::read_pool(settings.state);
  settings.latency > 0 ? bench::measure_latency(settings) : bench::measure_rates(settings);
  return 0;
}
