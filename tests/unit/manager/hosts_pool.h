#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/manager/world.h"

namespace stdchk::manager::test {

/// Benefactors on hosts, and a client that asks for copies or parity.
struct HostsPool : World {
  /// `copies`: the number of a Redundancy.
  HostsPool(std::uint32_t copies, const std::vector<std::string>& hosts,
            std::uint64_t each_arena_bytes, Config settings = {})
      : arena_bytes(each_arena_bytes) {
    config = std::move(settings);
    config.pool.copies = copies;
    start();
    for (const std::string& host : hosts) add(host);
    client = std::make_unique<TestClient>(*this, "client");
  }
  ~HostsPool() {
    client.reset();
    benefactors.clear();
  }
  TestBenefactor& add(const std::string& host) {
    const auto number = benefactors.size() + 1;
    benefactors.push_back(std::make_unique<TestBenefactor>(*this, "b" + std::to_string(number),
                                                           number, arena_bytes, host));
    return *benefactors.back();
  }
  TestBenefactor& of(BenefactorId id) {
    const auto found = std::find_if(benefactors.begin(), benefactors.end(),
                                    [&](const auto& each) { return each->id == id; });
    REQUIRE(found != benefactors.end());
    return **found;
  }
  /// Lets time pass; all live benefactors and the client send heartbeats.
  void live(Duration time) {
    constexpr Duration kBeat = std::chrono::seconds(1);
    for (Duration passed{}; passed < time; passed += kBeat) {
      for (const auto& each : benefactors) {
        if (each->peer_lives()) each->beat();
      }
      REQUIRE(client->call(msg::ClientHeartbeat{client->id}));
      pass(kBeat);
    }
  }
  /// Writes images of one chunk each; all chunks differ.
  std::vector<FileId> write_images(std::size_t count, std::uint32_t bytes) {
    std::vector<FileId> files;
    for (std::size_t i = 0; i < count; ++i) {
      ++written;
      const auto file = client->write("f" + std::to_string(written), bytes, written);
      REQUIRE(file);
      files.push_back(*file);
    }
    return files;
  }
  /// Writes such images by a client that writes all copies itself.
  std::vector<FileId> write_at_once(std::size_t count, std::uint32_t bytes, std::uint32_t copies) {
    std::vector<FileId> files;
    for (std::size_t i = 0; i < count; ++i) {
      const auto opened = open_at_once(extent_bytes(bytes));
      REQUIRE(opened.places == copies);
      const Grant& first = opened.grants.at(0);
      REQUIRE(first.first == first.benefactor);
      auto commit = TestClient::commit_of(opened.session, first, 0, bytes, ++written);
      for (std::size_t place = 1; place < copies; ++place) {
        const Grant& other = opened.grants.at(place);
        CHECK(other.first == first.benefactor);
        commit.written.chunks[0].copies.push_back({other.benefactor, other.offset});
      }
      commit.end = true;
      REQUIRE(client->call(commit));
      files.push_back(opened.attributes.id);
    }
    return files;
  }
  /// Opens a session on a new file.
  msg::OpenSession::Reply open_at_once(std::uint64_t want_bytes) {
    msg::OpenSession open;
    open.client = client->id;
    open.parent = kRootFile;
    open.name = "w" + std::to_string(written + 1);
    open.want_bytes = want_bytes;
    open.waits_for_copies = true;
    const auto opened = client->call(open);
    REQUIRE(opened);
    return *opened;
  }
  ChunkIndex chunk_of(FileId file, std::size_t slice = 0) const {
    return service->state().file(file)->newest.slices.at(slice).chunk;
  }
  std::vector<Extent> copies_of(FileId file) const {
    return service->state().chunks().get(chunk_of(file)).copies;
  }
  std::vector<std::string> broken() const {
    return service->services().administration.audit().reply().broken;
  }

  const std::uint64_t arena_bytes;
  std::vector<std::unique_ptr<TestBenefactor>> benefactors;
  std::unique_ptr<TestClient> client;
  std::uint64_t written = 0;  ///< images written by write_images()
};

}  // namespace stdchk::manager::test
