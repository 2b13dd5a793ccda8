// Measures where one manager ends. `load`: many clients write images through the manager's real code,
// in one thread, without sockets (scale_world.h). It measures the manager's processor time, the
// longest answers, memory and journal bytes. `journal`: the thread that writes the journal, on a real disk.
// `wire`: a message and its answer over the transport tcp, with TLS. Prints a JSON object.

#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/measuring.h"
#include "bench/scale_peers.h"
#include "bench/scale_world.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/runtime/options.h"
#include "manager/journal/sqlite_journal.h"
#include "transport/choice/factory.h"

namespace stdchk::bench {
namespace {

using namespace std::chrono_literals;

struct Settings {
  std::string mode;
  std::uint32_t clients = 1000;
  std::uint32_t folders = 1;
  std::uint32_t benefactors = 500;
  std::uint32_t chunk_mib = 1;
  std::uint32_t image_mib = 256;
  std::uint32_t arena_gib = 64;
  std::uint32_t images_a_minute = 10;  ///< of each client
  std::uint32_t seconds = 20;
  std::uint32_t messages = 100000;
  std::uint32_t bytes = 128;
  std::uint32_t links = 256;
  std::uint32_t records = 20000;
  std::uint32_t chunks = 256;
  std::string directory = ".";
};

// ---- load ---------------------------------------------------------------------------------------

/// Bytes that the program has allocated and not freed.
std::uint64_t allocated_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

/// A Load runs a manager through the phases of one measurement.
class Load {
 public:
  explicit Load(const Settings& settings) : settings_(settings), world_(config(settings)) {
    shared_.chunk_bytes = settings.chunk_mib * static_cast<std::uint32_t>(limits::kMiB);
    shared_.chunks = settings.image_mib / settings.chunk_mib;
    // A client looks up a quarter of its window's slots at once (client/write/chunk_placer.cpp).
    const auto slots = limits::kWindowBytesDefault / shared_.chunk_bytes;
    shared_.batch = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(slots / 4, 1, 16));
    shared_.folders.resize(settings.folders);
    shared_.period = std::chrono::nanoseconds(1min) / settings.images_a_minute;
    for (std::uint32_t i = 0; i < settings.benefactors; ++i) {
      benefactors_.push_back(std::make_unique<ScaleBenefactor>(
          world_, i, std::uint64_t{settings.arena_gib} * limits::kGiB));
    }
    for (std::uint32_t i = 0; i < settings.clients; ++i) {
      clients_.push_back(std::make_unique<ScaleClient>(world_, shared_, i));
    }
  }

  nlohmann::json run() {
    nlohmann::json out = {
        {"clients", settings_.clients},         {"folders", settings_.folders},
        {"benefactors", settings_.benefactors}, {"chunk_mib", settings_.chunk_mib},
        {"chunks_an_image", shared_.chunks},    {"taken", wall_seconds()}};
    world_.run_until(world_.now() + 5s);
    for (const auto& each : benefactors_) {
      if (!each->registered()) give_up("a benefactor does not register");
    }
    const std::uint64_t without_clients = allocated_bytes();
    register_clients(out);
    idle(out);
    out["idle_client_bytes"] =
        each_client(static_cast<double>(allocated_bytes() - without_clients));
    write(out);
    out["overloaded"] = world_.overloaded();
    if (!world_.overloaded()) measure_memory(out, without_clients);
    return out;
  }

 private:
  static manager::Config config(const Settings& settings) {
    manager::Config config;
    config.membership = manager::Membership::trusting_all();
    config.pool.chunk_bytes = settings.chunk_mib * static_cast<std::uint32_t>(limits::kMiB);
    config.pool.stripe_width = limits::kStripeWidthDefault;
    config.pool.naming = Naming::kOn;
    return config;
  }

  double each_client(double of_all) const { return of_all / settings_.clients; }

  void register_clients(nlohmann::json& out) {
    const double before = world_.busy_seconds();
    for (std::uint32_t i = 0; i < settings_.clients; ++i) {
      world_.schedule(world_.now() + i * (Duration(10s) / settings_.clients), clients_[i]->actor(),
                      ScaleClient::kRegister);
    }
    for (int i = 0; i < 60 && !all([](const ScaleClient& each) { return each.registered(); });
         ++i) {
      world_.run_until(world_.now() + 1s);
    }
    if (!all([](const ScaleClient& each) { return each.registered(); })) {
      give_up("the clients do not all register");
    }
    out["register_us"] = each_client(world_.busy_seconds() - before) * 1e6;
    for (std::uint32_t i = 0; i < settings_.folders; ++i) {
      world_.schedule(world_.now() + i * 200us, clients_[i]->actor(), ScaleClient::kMakeFolder);
    }
    world_.run_until(world_.now() + settings_.folders * 200us + 1s);
    if (std::ranges::count(shared_.folders, FileId{}) > 0) give_up("a folder was not made");
  }

  void idle(nlohmann::json& out) {
    world_.run_until(world_.now() + 2s);
    const double before = world_.busy_seconds();
    const Time began = world_.now();
    world_.run_until(began + 5s);
    const std::chrono::duration<double> took = world_.now() - began;
    idle_busy_ = (world_.busy_seconds() - before) / took.count();
    out["idle_busy"] = idle_busy_;
    out["idle_us_a_client_s"] = each_client(idle_busy_) * 1e6;
  }

  void write(nlohmann::json& out) {
    const auto step = shared_.period / settings_.clients;
    for (std::uint32_t i = 0; i < settings_.clients; ++i) {
      clients_[i]->begin_at(world_.now() + i * step);
    }
    world_.run_until(world_.now() + (shared_.kept + 1) * shared_.period);
    world_.take_longest_turn();
    shared_.counts = true;
    const double busy_before = world_.busy_seconds();
    const std::uint64_t bytes = world_.journal().bytes();
    const std::uint64_t records = world_.journal().records();
    const std::uint64_t snapshots = world_.journal().snapshots();
    const Time began = world_.now();
    world_.run_until(began + std::chrono::seconds(settings_.seconds));
    shared_.counts = false;
    const std::chrono::duration<double> took = world_.now() - began;
    const double busy = (world_.busy_seconds() - busy_before) / took.count();
    const auto images = static_cast<double>(std::max<std::uint64_t>(shared_.images, 1));
    out["images"] = shared_.images;
    out["images_per_s"] = images / took.count();
    out["busy"] = busy;
    out["us_an_image"] = (busy - idle_busy_) * took.count() / images * 1e6;
    out["calls_per_s"] = static_cast<double>(shared_.calls) / took.count();
    out["notices_an_image"] = static_cast<double>(shared_.notices) / images;
    out["journal_bytes_an_image"] = static_cast<double>(world_.journal().bytes() - bytes) / images;
    out["journal_records_an_image"] =
        static_cast<double>(world_.journal().records() - records) / images;
    out["journal_bytes_per_s"] =
        static_cast<double>(world_.journal().bytes() - bytes) / took.count();
    out["snapshots"] = world_.journal().snapshots() - snapshots;
    out["longest_turn_ms"] = world_.take_longest_turn() * 1e3;
    add_answers(out);
  }

  void add_answers(nlohmann::json& out) {
    std::vector<float> together;
    for (std::size_t i = 0; i < kScaleCalls; ++i) {
      const auto& of_call = shared_.answers_ms[i];
      if (of_call.empty()) continue;
      out["longest_ms_of"][kScaleCallNames[i]] = *std::ranges::max_element(of_call);
      together.insert(together.end(), of_call.begin(), of_call.end());
    }
    if (together.empty()) return;
    std::ranges::sort(together);
    out["answer_ms"] = {{"median", together[together.size() / 2]},
                        {"p99", together[together.size() * 99 / 100]},
                        {"longest", together.back()}};
  }

  /// Lets the clients end their images, removes all images, and compares the memory.
  void measure_memory(nlohmann::json& out, std::uint64_t without_clients) {
    shared_.writes = false;
    wait("end their images", [](const ScaleClient& each) { return each.idle(); });
    const manager::State& state = world_.manager().state();
    const auto chunks = static_cast<double>(state.chunks().chunk_count());
    const auto images = static_cast<double>(state.files().size() - 1 - settings_.folders);
    const std::uint64_t table = state.chunks().memory_bytes();
    const std::uint64_t with_images = allocated_bytes() - table;
    out["live_images"] = images;
    out["live_chunks"] = chunks;
    out["table_bytes_a_chunk"] = static_cast<double>(table) / chunks;
    for (const auto& each : clients_) {
      world_.schedule(world_.now(), each->actor(), ScaleClient::kPurge);
    }
    for (int i = 0; i < 60 && state.chunks().chunk_count() > 0; ++i) {
      world_.run_until(world_.now() + 1s);
    }
    if (state.chunks().chunk_count() > 0) give_up("chunks are left");
    const std::uint64_t empty = allocated_bytes() - state.chunks().memory_bytes();
    out["image_bytes"] = (static_cast<double>(with_images) - static_cast<double>(empty)) / images;
    out["client_bytes"] =
        each_client(static_cast<double>(empty) - static_cast<double>(without_clients));
  }

  template <class Done>
  void wait(const char* what, Done done) {
    for (int i = 0; i < 60 && !all(done); ++i) world_.run_until(world_.now() + 1s);
    if (!all(done)) give_up(std::string("the clients do not ") + what);
  }

  template <class Test>
  bool all(Test test) const {
    return std::ranges::all_of(clients_, [&](const auto& each) { return test(*each); });
  }

  const Settings& settings_;
  ScaleLoad shared_;
  ScaleWorld world_;
  std::vector<std::unique_ptr<ScaleBenefactor>> benefactors_;
  std::vector<std::unique_ptr<ScaleClient>> clients_;
  double idle_busy_ = 0;
};

// ---- journal ------------------------------------------------------------------------------------

manager::CommitVersion image_record(std::uint64_t number, std::uint32_t chunks) {
  manager::CommitVersion commit;
  commit.file = FileId{number + 2};
  commit.create =
      manager::NewName{kRootFile, "app.N1.T" + std::to_string(number), 0644, 0, 0, 0, {}};
  Prng prng(number + 1);
  for (std::uint32_t i = 0; i < chunks; ++i) {
    Chunk chunk{{}, 1 << 20, 7, {{BenefactorId{1 + i % 4}, prng.below(1 << 20) << 20}}};
    for (auto& byte : chunk.name.bytes) byte = static_cast<std::byte>(prng.next() >> 56);
    commit.written.chunks.push_back(std::move(chunk));
    commit.written.slices.push_back({std::uint64_t{i} << 20, 1 << 20, 0, i});
  }
  return commit;
}

/// Writes the commits of images to a real journal, with 64 of them not durable at any time.
nlohmann::json measure_journal(const Settings& settings) {
  constexpr std::uint32_t kWaiting = 64;
  SystemClock clock;
  Reactor reactor(clock);
  const auto journal = must(manager::SqliteJournal::open(settings.directory));
  must(journal->load(reactor, [](const manager::Command&) -> Status { return {}; }));
  std::vector<manager::Command> commands;
  for (std::uint32_t i = 0; i < 256; ++i) commands.push_back(image_record(i, settings.chunks));
  const double started = wall_seconds();
  const double cpu = cpu_seconds(0) - thread_seconds();
  std::uint32_t sent = 0;
  std::uint32_t durable = 0;
  while (durable < settings.records) {
    for (; sent < settings.records && sent < durable + kWaiting; ++sent) {
      journal->append(commands[sent % commands.size()], [&durable](const Status& status) {
        if (!status) give_up(describe(status.error()));
        ++durable;
      });
    }
    reactor.run_once(1s);
  }
  const double took = wall_seconds() - started;
  const double spent = cpu_seconds(0) - thread_seconds() - cpu;
  journal->stop();
  const auto size = std::filesystem::file_size(settings.directory + "/journal.db");
  return {{"taken", started},
          {"records", settings.records},
          {"chunks", settings.chunks},
          {"records_per_s", settings.records / took},
          {"cpu_us_a_record", spent / settings.records * 1e6},
          {"database_bytes_a_record", static_cast<double>(size) / settings.records}};
}

// ---- wire ---------------------------------------------------------------------------------------

std::unique_ptr<transport::Endpoint> open_tcp(Clock& clock) {
  using namespace transport::secure;
  transport::EndpointOptions options{.clock = &clock};
  // A fixed root secret for both ends, which anyone can know.
  options.identity = std::make_shared<Keyring>(Keyring::of_root({}, new_member(Role::kManager)));
  return must(transport::open_endpoint("tcp", options));
}

/// An Echo answers each message with a short one.
class Echo final : public transport::AcceptHandler, public transport::LinkHandler {
 public:
  void on_accept(std::unique_ptr<transport::Link> link) override {
    link->set_handler(*this);
    links_.push_back(std::move(link));
  }
  void on_connected(transport::Link&) override {}
  void on_message(transport::Link& link, ByteSpan) override {
    constexpr std::array<std::byte, 64> kAnswer{};
    must(link.send(kAnswer));
    ++answered;
  }
  void on_closed(transport::Link&, Error) override {}
  void drop() { links_.clear(); }
  std::uint64_t answered = 0;

 private:
  std::vector<std::unique_ptr<transport::Link>> links_;
};

/// An Asker sends a message on each link, and another one after each answer.
class Asker final : public transport::LinkHandler {
 public:
  explicit Asker(std::size_t bytes) : message_(bytes) {}
  void on_connected(transport::Link& link) override { must(link.send(message_)); }
  void on_message(transport::Link& link, ByteSpan) override { must(link.send(message_)); }
  void on_closed(transport::Link&, Error why) override { give_up("a link: " + describe(why)); }

 private:
  std::vector<std::byte> message_;
};

/// Measures the processor time of the thread that answers.
nlohmann::json measure_wire(const Settings& settings) {
  SystemClock clock;
  Reactor reactor(clock);
  const auto endpoint = open_tcp(clock);
  Echo echo;
  must(endpoint->listen(echo));
  reactor.add(*endpoint);
  const std::string address = endpoint->address();
  std::atomic<bool> done{false};
  std::thread asking([&] {
    Reactor own(clock);
    const auto from = open_tcp(clock);
    own.add(*from);
    Asker asker(settings.bytes);
    std::vector<std::unique_ptr<transport::Link>> links;
    for (std::uint32_t i = 0; i < settings.links; ++i) {
      links.push_back(must(from->connect(address, asker, limits::kConnectDeadline)));
      own.run_once(1ms);
    }
    while (!done) own.run_once(10ms);
    links.clear();
    own.remove(*from);
  });
  const auto answer = [&](std::uint64_t until) {
    while (echo.answered < until) reactor.run_once(1s);
  };
  answer(settings.messages / 4);  // the handshakes are over
  const std::uint64_t before = echo.answered;
  const double started = thread_seconds();
  answer(before + settings.messages);
  const double spent = thread_seconds() - started;
  const auto answers = static_cast<double>(echo.answered - before);
  done = true;
  for (int i = 0; i < 50; ++i) reactor.run_once(10ms);
  asking.join();
  echo.drop();
  reactor.remove(*endpoint);
  return {{"taken", wall_seconds()},
          {"bytes", settings.bytes},
          {"links", settings.links},
          {"us_a_message", spent / answers * 1e6}};
}

nlohmann::json measure(const Settings& settings) {
  if (settings.mode == "load") return Load(settings).run();
  if (settings.mode == "journal") return measure_journal(settings);
  if (settings.mode == "wire") return measure_wire(settings);
  give_up("MODE is load, journal or wire");
}

}  // namespace
}  // namespace stdchk::bench

int main(int argc, char** argv) {
  using namespace stdchk;
  bench::Settings settings;
  Options options("scale-bench", "Measures where one manager ends.");
  options.argument("MODE", settings.mode, "load, journal or wire").required();
  options.count("--clients", settings.clients, 1, 100000, "load: clients that write");
  options.count("--folders", settings.folders, 1, 100000, "load: folders that they share");
  options.count("--benefactors", settings.benefactors, 4, 500, "load: of the pool");
  options.count("--chunk", settings.chunk_mib, 1, 16, "load: MiB of a chunk");
  options.count("--image", settings.image_mib, 1, 1536, "load: MiB of an image");
  options.count("--arena", settings.arena_gib, 1, 4096, "load: GiB of each benefactor");
  options.count("--rate", settings.images_a_minute, 1, 60, "load: images of a client a minute");
  options.count("--seconds", settings.seconds, 1, 3600, "load: of the manager's time");
  options.count("--messages", settings.messages, 1000, 1U << 30, "wire: messages that count");
  options.count("--bytes", settings.bytes, 1, 200000, "wire: of a message");
  options.count("--links", settings.links, 1, 10000, "wire: that send at once");
  options.count("--records", settings.records, 1, 1U << 30, "journal: commits of images");
  options.count("--chunks", settings.chunks, 1, 1536, "journal: of an image");
  options.text("--directory", settings.directory, "PATH", "journal: where it is written");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  if (settings.folders > settings.clients) bench::give_up("each folder needs a client");
  log::start("scale-bench", log::Level::kError);
  std::printf("%s\n", bench::measure(settings).dump().c_str());
  return 0;
}
