// Pins the bytes of what outlives a process or leaves it: tests/golden/*.txt hold them as "name
// hexadecimal" lines. A line that changes is a change of format: docs/internals/formats.md says
// what that takes. `golden-test --rewrite` does not exist on purpose: a failure prints the line as
// it is now.

#include <fmt/core.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <type_traits>

#include "core/chunk/extent_header.h"
#include "core/chunk/naming.h"
#include "core/messages/codec.h"
#include "manager/journal/journal.members.h"
#include "manager/journal/journal_codec.h"
#include "manager/journal/metadata_log.h"
#include "tests/support/catch.h"
#include "tests/unit/core/random_message.h"
#include "tests/unit/manager/some_commands.h"

using namespace stdchk;

namespace {

std::string hex(ByteSpan bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

std::vector<std::byte> unhex(const std::string& text) {
  std::vector<std::byte> bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

std::map<std::string, std::string> read_lines(const std::string& file) {
  std::ifstream stream(STDCHK_GOLDEN_DIR "/" + file);
  REQUIRE(stream.is_open());
  std::map<std::string, std::string> lines;
  for (std::string name, value; stream >> name >> value;) lines[name] = value;
  return lines;
}

/// Prints today's line if it differs from the expected line.
bool is_golden(const std::string& name, ByteSpan bytes, const std::string& wanted) {
  const std::string now = hex(bytes);
  if (now != wanted) std::printf("%s %s\n", name.c_str(), now.c_str());
  return now == wanted;
}

std::string kind_name(std::size_t kind) { return "kind" + std::to_string(kind); }

/// A command of each kind, without names that wait in the drain directory, parts and homes.
std::vector<manager::Command> before_held() {
  std::vector<manager::Command> commands = manager::test::one_of_each();
  for (manager::Command& command : commands) {
    std::visit(
        []<class C>(C& one) {
          if constexpr (requires { one.held; }) one.held = false;
          if constexpr (requires { one.counts; }) one.counts = false;
          if constexpr (requires { one.partial; }) one.partial = false;
          if constexpr (requires { one.holes; }) one.holes.clear();
          if constexpr (requires { one.homes; }) one.homes.clear();
          if constexpr (std::is_same_v<C, manager::ChangeXattr>) one.mirror = false;
          if constexpr (requires { one.staged; }) {
            one.staged = false;
            one.aside = 0;
          }
        },
        command);
  }
  return commands;
}

/// A command of each kind, without a client.
std::vector<manager::Command> before_callers() {
  std::vector<manager::Command> commands = before_held();
  for (manager::Command& command : commands) {
    std::visit(
        []<class C>(C& one) {
          if constexpr (requires { one.caller; }) one.caller = {};
        },
        command);
  }
  return commands;
}

}  // namespace

TEST_CASE("the extent header's bytes are the documented ones") {
  const ExtentHeader header{name_chunk(std::as_bytes(std::span("abc", 3))), 3, 0x364B3FB7,
                            FileId{0x1122334455667788}, 0x99AABBCC};
  const std::string wanted = read_lines("extent_header.txt").at("SDX1");
  std::array<std::byte, limits::kExtentHeaderBytes> bytes;
  encode_extent_header(header, bytes.data());
  CHECK(is_golden("SDX1", bytes, wanted));
  const auto read = decode_extent_header(unhex(wanted));
  REQUIRE(read.has_value());
  CHECK(*read == header);
}

TEST_CASE("each kind of message has the bytes it always had") {
  const auto lines = read_lines("messages.txt");
  for (std::size_t kind = 0; kind < test::kKinds; ++kind) {
    Prng prng(kind);
    const msg::Envelope message = test::random_message(prng, kind);
    std::vector<std::byte> bytes;
    REQUIRE(msg::encode(message, bytes).has_value());
    const auto line = lines.find(kind_name(kind));
    CHECK(is_golden(kind_name(kind), bytes, line == lines.end() ? "" : line->second));
    if (line == lines.end()) continue;
    const auto read = msg::decode(unhex(line->second));
    REQUIRE(read.has_value());
    CHECK(*read == message);
  }
}

TEST_CASE("a Commit of who does not know of drained versions in memory is of new content") {
  const auto read =
      msg::decode(unhex(read_lines("messages_older.txt").at("commit_before_same_as")));
  REQUIRE(read.has_value());
  const auto& request = std::get<msg::RequestEnvelope>(*read);
  CHECK(std::get<msg::Commit>(request.body).same_as == 0);
}

TEST_CASE("a Commit of a client that does not know of appends leaves bytes where they are") {
  const auto read =
      msg::decode(unhex(read_lines("messages_older.txt").at("commit_before_appends")));
  REQUIRE(read.has_value());
  const auto& request = std::get<msg::RequestEnvelope>(*read);
  CHECK(std::get<msg::Commit>(request.body).size_bytes > 0);
  CHECK_FALSE(std::get<msg::Commit>(request.body).appends);
}

TEST_CASE("a Commit of a client that does not know of holes has none") {
  const auto read = msg::decode(unhex(read_lines("messages_older.txt").at("commit_before_holes")));
  REQUIRE(read.has_value());
  const auto& request = std::get<msg::RequestEnvelope>(*read);
  CHECK(std::get<msg::Commit>(request.body).append_from > 0);
  CHECK(std::get<msg::Commit>(request.body).holes.empty());
}

TEST_CASE("DrainPieces of a manager that sends no owner of the earlier version has none") {
  const auto read =
      msg::decode(unhex(read_lines("messages_older.txt").at("drain_pieces_before_base_uid")));
  REQUIRE(read.has_value());
  const auto& request = std::get<msg::RequestEnvelope>(*read);
  CHECK_FALSE(std::get<msg::DrainPieces>(request.body).base_path.empty());
  CHECK(std::get<msg::DrainPieces>(request.body).base_uid == msg::kUnknownUid);
}

TEST_CASE("a manager that does not know of advice on its metadata gives none") {
  const auto read =
      msg::decode(unhex(read_lines("messages_older.txt").at("stat_pool_reply_before_advice")));
  REQUIRE(read.has_value());
  const auto& envelope = std::get<msg::ReplyEnvelope>(*read);
  const auto& reply = std::get<msg::StatPool::Reply>(envelope.body);
  CHECK(reply.reader_count > 0);
  CHECK(reply.log_advice.empty());
  CHECK(reply.log_bytes_needed == 0);
  CHECK(reply.standby_quorum == 0);
}

TEST_CASE("who does not know of several places asks for one, and grants for one") {
  const auto lines = read_lines("messages_older.txt");
  const auto read = [&](const char* name) {
    const auto message = msg::decode(unhex(lines.at(name)));
    REQUIRE(message.has_value());
    return *message;
  };
  const auto request = [&](const char* name) {
    return std::get<msg::RequestEnvelope>(read(name)).body;
  };
  const auto reply = [&](const char* name) {
    return std::get<msg::ReplyEnvelope>(read(name)).body;
  };
  CHECK_FALSE(std::get<msg::OpenSession>(request("open_session_before_places")).waits_for_copies);
  CHECK_FALSE(
      std::get<msg::ResumeSession>(request("resume_session_before_places")).waits_for_copies);
  CHECK(std::get<msg::Place>(request("place_before_places")).beside.empty());
  const auto opened = std::get<msg::OpenSession::Reply>(reply("open_session_reply_before_places"));
  CHECK(opened.places == 0);
  const auto placed = std::get<msg::Place::Reply>(reply("place_reply_before_places"));
  REQUIRE_FALSE(placed.grants.empty());
  for (const Grant& grant : placed.grants) {
    CHECK(grant.first == BenefactorId{});
    CHECK(grant.domain == 0);
    CHECK(grant.proof_low == 0);
    CHECK(grant.proof_high == 0);
  }
}

TEST_CASE("a manager that does not know of grants' numbers closes no grants") {
  const auto lines = read_lines("messages_older.txt");
  const auto request = [&](const char* name) {
    const auto message = msg::decode(unhex(lines.at(name)));
    REQUIRE(message.has_value());
    return std::get<msg::RequestEnvelope>(*message).body;
  };
  CHECK_FALSE(std::get<msg::MoveExtents>(request("move_extents_before_grants")).grants_before);
  CHECK_FALSE(std::get<msg::CopyExtents>(request("copy_extents_before_grants")).grants_before);
  CHECK_FALSE(std::get<msg::BuildStripe>(request("build_stripe_before_grants")).grants_before);
}

TEST_CASE("who goes on with a session, and does not know of changes of a new file, has made none") {
  const auto read =
      msg::decode(unhex(read_lines("messages_older.txt").at("resume_session_before_changes")));
  REQUIRE(read.has_value());
  const auto& request = std::get<msg::ResumeSession>(std::get<msg::RequestEnvelope>(*read).body);
  CHECK(request.parent);
  CHECK_FALSE(request.renamed);
  CHECK_FALSE(request.changed);
  CHECK(request.xattrs.empty());
}

TEST_CASE("who does not know of leases on directories chooses no numbers, and recalls nothing") {
  const auto lines = read_lines("messages_older.txt");
  const auto open = msg::decode(unhex(lines.at("open_session_before_numbers")));
  REQUIRE(open.has_value());
  const auto& request = std::get<msg::OpenSession>(std::get<msg::RequestEnvelope>(*open).body);
  CHECK(request.parent);
  CHECK_FALSE(request.number);
  const auto notice = msg::decode(unhex(lines.at("invalidate_before_recalls")));
  REQUIRE(notice.has_value());
  const auto& invalidate = std::get<msg::Invalidate>(std::get<msg::NoticeEnvelope>(*notice).body);
  CHECK_FALSE(invalidate.files.empty());
  CHECK(invalidate.recalled.empty());
}

TEST_CASE("a manager that does not know of near copies shares no files") {
  const auto lines = read_lines("messages_older.txt");
  const auto reply = msg::decode(unhex(lines.at("get_map_reply_before_shared")));
  REQUIRE(reply.has_value());
  const auto& body = std::get<msg::ReplyEnvelope>(*reply).body;
  CHECK_FALSE(std::get<msg::GetMap::Reply>(body).shared);
  const auto notice = msg::decode(unhex(lines.at("invalidate_before_shared")));
  REQUIRE(notice.has_value());
  const auto& invalidate = std::get<msg::Invalidate>(std::get<msg::NoticeEnvelope>(*notice).body);
  CHECK(invalidate.shared.empty());
}

TEST_CASE("who does not know of access lists has applied the umask, and no drained mode changes") {
  const auto lines = read_lines("messages_older.txt");
  const auto request = [&]<class M>(const char* name, M) {
    const auto message = msg::decode(unhex(lines.at(name)));
    REQUIRE(message.has_value());
    return std::get<M>(std::get<msg::RequestEnvelope>(*message).body);
  };
  const auto directory = request("make_directory_before_lists", msg::MakeDirectory{});
  CHECK(directory.parent);
  CHECK(directory.unmasked == 0);
  CHECK(request("open_session_before_lists", msg::OpenSession{}).unmasked == 0);
  CHECK(request("make_node_before_lists", msg::MakeNode{}).unmasked == 0);
  const auto read = manager::decode_command(
      unhex(read_lines("journal_older.txt").at("change_xattr_before_lists")));
  REQUIRE(read.has_value());
  const auto& change = std::get<manager::ChangeXattr>(*read);
  CHECK(change.change.name == "user.k");
  CHECK_FALSE(change.mirror);
}

TEST_CASE("who does not know of owners in the drain directory has not said any") {
  const auto lines = read_lines("messages_older.txt");
  for (const char* name : {"find_drained_before_owners", "mirror_change_before_owners"}) {
    const auto message = msg::decode(unhex(lines.at(name)));
    REQUIRE(message.has_value());
    const auto& body = std::get<msg::RequestEnvelope>(*message).body;
    if (const auto* wanted = std::get_if<msg::FindDrained>(&body)) {
      REQUIRE_FALSE(wanted->files.empty());
      for (const auto& file : wanted->files) CHECK(file.uid == msg::kUnknownUid);
    } else {
      CHECK(std::get<msg::MirrorChange>(body).uid_before == msg::kUnknownUid);
    }
  }
  const auto read =
      manager::decode_command(unhex(read_lines("journal_older.txt").at("mirror_before_owners")));
  REQUIRE(read.has_value());
  const auto& change = std::get<manager::RestoreMirror>(*read).change;
  CHECK(change.uid == 1);
  CHECK(change.uid_before == msg::kUnknownUid);
}

TEST_CASE("a manager that does not know of sets' problems tells of none") {
  const auto read =
      msg::decode(unhex(read_lines("messages_older.txt").at("list_sets_reply_before_problems")));
  REQUIRE(read.has_value());
  const auto& reply = std::get<msg::ListSets::Reply>(std::get<msg::ReplyEnvelope>(*read).body);
  REQUIRE_FALSE(reply.sets.empty());
  CHECK_FALSE(reply.sets[0].application.empty());
  CHECK(reply.sets[0].problem.empty());
}

TEST_CASE("a ConfirmDrained of who does not know of evicted files has none of them compared") {
  const auto read =
      msg::decode(unhex(read_lines("messages_older.txt").at("confirm_drained_before_evicted")));
  REQUIRE(read.has_value());
  const auto& request = std::get<msg::ConfirmDrained>(std::get<msg::RequestEnvelope>(*read).body);
  CHECK_FALSE(request.files.empty());
  CHECK_FALSE(request.compares_evicted);
}

TEST_CASE("a manager that does not know of devices and hard links tells of none") {
  const auto lines = read_lines("messages_older.txt");
  const auto reply = [&](const char* name) {
    const auto message = msg::decode(unhex(lines.at(name)));
    REQUIRE(message.has_value());
    return std::get<msg::ReplyEnvelope>(*message).body;
  };
  const auto found = std::get<msg::Lookup::Reply>(reply("lookup_reply_before_devices"));
  CHECK(found.attributes.id);
  CHECK(found.attributes.device == 0);
  CHECK_FALSE(found.attributes.has_access_list);
  CHECK_FALSE(found.attributes.has_default_list);
  CHECK_FALSE(found.attributes.has_no_xattrs);
  const auto removed = std::get<msg::Remove::Reply>(reply("remove_reply_before_links"));
  CHECK(removed.file);
  CHECK(removed.names_left == 0);
  const auto renamed = std::get<msg::Rename::Reply>(reply("rename_reply_before_links"));
  CHECK(renamed.replaced);
  CHECK(renamed.names_left == 0);
  CHECK_FALSE(renamed.moved);
}

TEST_CASE(
    "a manager that tells no attributes after a change of extended attributes has not said any") {
  const auto message =
      msg::decode(unhex(read_lines("messages_older.txt").at("set_xattr_reply_before_attributes")));
  REQUIRE(message.has_value());
  const auto& reply = std::get<msg::ReplyEnvelope>(*message);
  CHECK(reply.code == Code{});
  CHECK_FALSE(std::get<msg::SetXattr::Reply>(reply.body).attributes.id);
}

TEST_CASE("who still sends a secret proves nothing by it, and who knows of no tickets has none") {
  const auto lines = read_lines("messages_older.txt");
  const auto read = [&](const char* name) {
    const auto message = msg::decode(unhex(lines.at(name)));
    REQUIRE(message.has_value());
    return *message;
  };
  const auto request = [&](const char* name) {
    return std::get<msg::RequestEnvelope>(read(name)).body;
  };
  CHECK(std::get<msg::RegisterClient>(request("register_client_with_secret")).proof.empty());
  CHECK(
      std::get<msg::RegisterBenefactor>(request("register_benefactor_with_secret")).proof.empty());
  CHECK(std::holds_alternative<msg::Attach>(request("attach_with_secret")));
  CHECK(std::holds_alternative<msg::FollowManager>(request("follow_with_secret")));
  const auto listed = std::get<msg::ReplyEnvelope>(read("list_benefactors_before_tickets")).body;
  const auto& benefactors = std::get<msg::ListBenefactors::Reply>(listed).benefactors;
  REQUIRE_FALSE(benefactors.empty());
  for (const msg::BenefactorInfo& one : benefactors) {
    CHECK(one.member.empty());
    CHECK(one.ticket_key.empty());
  }
}

TEST_CASE("each command of the journal has the bytes it always had") {
  const auto lines = read_lines("journal.txt");
  const auto commands = manager::test::one_of_each();
  REQUIRE(commands.size() == std::variant_size_v<manager::AnyCommand>);
  for (const manager::Command& command : commands) {
    std::vector<std::byte> bytes;
    REQUIRE(manager::encode_command(command, bytes).has_value());
    const std::string name = "command" + std::to_string(command.index());
    const auto line = lines.find(name);
    CHECK(is_golden(name, bytes, line == lines.end() ? "" : line->second));
    if (line == lines.end()) continue;
    const auto read = manager::decode_command(unhex(line->second));
    REQUIRE(read.has_value());
    CHECK(*read == command);
  }
}

TEST_CASE("each member of each command is set in its golden line") {
  for (manager::Command& command : manager::test::one_of_each()) {
    int unset = 0;
    const auto look = [&]<class T>(const T& member) { unset += member == T{}; };
    std::visit([&](auto& body) { each_member(look, body); }, command);
    // The restored file is a regular one, which has no target.
    CHECK(unset == (std::holds_alternative<manager::RestoreFile>(command) ? 1 : 0));
  }
}

TEST_CASE("the checksum of a record in journal.db and a metadata log have the documented bytes") {
  const auto lines = read_lines("journal.txt");
  const auto commands = manager::test::one_of_each();
  std::vector<std::byte> record;
  REQUIRE(manager::encode_command(commands[0], record).has_value());
  const std::uint32_t crc = manager::record_crc(0x0123456789, record);
  CHECK(fmt::format("{:08x}", crc) == lines.at("record_crc"));
  const manager::LogKeys keys(Secret{});
  std::string log;
  manager::LogSnapshot snapshot(keys, Epoch{2}, 5, 7, log);
  REQUIRE(snapshot.append(commands[0], log).has_value());
  snapshot.finish(log);
  REQUIRE(manager::append_record(keys, Epoch{2}, 6, commands[3], log).has_value());
  CHECK(is_golden("log", std::as_bytes(std::span(log)), lines.at("log")));
}

TEST_CASE("a metadata log of before there were checksums or MACs is read") {
  const std::map<std::string, std::vector<manager::Command>> logs{
      {"log_before_checksums", before_callers()},
      {"log_before_macs", manager::test::one_of_each()}};
  for (const auto& [line, commands] : logs) {
    const auto bytes = unhex(read_lines("journal_older.txt").at(line));
    const std::string_view log{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    const auto read = manager::decode_log(log);
    REQUIRE(read.has_value());
    CHECK(read->commands == std::vector<manager::Command>{commands[0], commands[3]});
    // An old log proves no author, so a rebuild refuses the log.
    const manager::LogKeys keys(Secret{});
    CHECK_FALSE(manager::decode_log(log, &keys).has_value());
  }
}

TEST_CASE("a journal of before there were copies asks for one of each chunk") {
  const auto read = manager::decode_command(unhex(read_lines("journal_older.txt").at("commit")));
  REQUIRE(read.has_value());
  const auto& commit = std::get<manager::CommitVersion>(*read);
  CHECK(commit.size_bytes == 5000);
  CHECK(commit.written.chunks.at(0) == manager::test::some_chunk());
  CHECK(commit.copies == 0);
}

TEST_CASE("a snapshot of before there were report cards counts from nothing") {
  const auto read = manager::decode_command(unhex(read_lines("journal_older.txt").at("counters")));
  REQUIRE(read.has_value());
  CHECK(std::get<manager::RestoreCounters>(*read) == manager::RestoreCounters{{3}, 4, 5});
}

TEST_CASE("a snapshot of before the records of epochs were counted knows of none") {
  const auto lines = read_lines("journal_older.txt");
  const auto read = manager::decode_command(unhex(lines.at("counters_before_epochs")));
  REQUIRE(read.has_value());
  CHECK(std::get<manager::RestoreCounters>(*read) ==
        manager::RestoreCounters{{3}, 4, 5, {6, 7, 8, 9, 10}});
}

TEST_CASE("in a journal of before there were generations of sets each image counts") {
  const auto lines = read_lines("journal_older.txt");
  const auto commit = manager::decode_command(unhex(lines.at("commit_before_generations")));
  REQUIRE(commit.has_value());
  CHECK(std::get<manager::CommitVersion>(*commit).copies == 3);
  CHECK(std::get<manager::CommitVersion>(*commit).opened == 0);
  const auto file = manager::decode_command(unhex(lines.at("file_before_generations")));
  REQUIRE(file.has_value());
  CHECK(std::get<manager::RestoreFile>(*file).sequence == 8);
  CHECK(std::get<manager::RestoreFile>(*file).written == 0);
}

TEST_CASE("a version of before its naming was told does not say how it was named") {
  const auto lines = read_lines("journal_older.txt");
  const auto commit = manager::decode_command(unhex(lines.at("commit_before_naming")));
  REQUIRE(commit.has_value());
  CHECK(std::get<manager::CommitVersion>(*commit).replacing == 5);
  CHECK(std::get<manager::CommitVersion>(*commit).naming == NamingState::kUnknown);
  const auto file = manager::decode_command(unhex(lines.at("file_before_naming")));
  REQUIRE(file.has_value());
  CHECK(std::get<manager::RestoreFile>(*file).written == 7);
  CHECK(std::get<manager::RestoreFile>(*file).attributes.naming == NamingState::kUnknown);
}

TEST_CASE("a file of before there were devices has no device number") {
  const auto lines = read_lines("journal_older.txt");
  const auto file = manager::decode_command(unhex(lines.at("file_before_devices")));
  REQUIRE(file.has_value());
  CHECK(std::get<manager::RestoreFile>(*file).attributes.device == 0);
}

TEST_CASE("chunks of before images were placed by node have no homes") {
  const auto lines = read_lines("journal_older.txt");
  const auto commit = manager::decode_command(unhex(lines.at("commit_before_homes")));
  REQUIRE(commit.has_value());
  CHECK(std::get<manager::CommitVersion>(*commit).same_as == 6);
  CHECK(std::get<manager::CommitVersion>(*commit).homes.empty());
  const auto file = manager::decode_command(unhex(lines.at("file_before_homes")));
  REQUIRE(file.has_value());
  CHECK(std::get<manager::RestoreFile>(*file).drained_sets.size() == 2);
  CHECK(std::get<manager::RestoreFile>(*file).homes.empty());
}

TEST_CASE("a commit of before there were holes has none") {
  const auto read =
      manager::decode_command(unhex(read_lines("journal_older.txt").at("commit_before_holes")));
  REQUIRE(read.has_value());
  CHECK(std::get<manager::CommitVersion>(*read).partial);
  CHECK(std::get<manager::CommitVersion>(*read).holes.empty());
}

TEST_CASE("a version of before drained ones were loaded into memory is one of new content") {
  const auto lines = read_lines("journal_older.txt");
  const auto commit = manager::decode_command(unhex(lines.at("commit_before_same_as")));
  REQUIRE(commit.has_value());
  CHECK(std::get<manager::CommitVersion>(*commit).naming == NamingState::kDidNotPay);
  CHECK(std::get<manager::CommitVersion>(*commit).same_as == 0);
}

TEST_CASE("in a journal of before sets kept their number of images the policy says it") {
  const auto read =
      manager::decode_command(unhex(read_lines("journal_older.txt").at("generation_before_whole")));
  REQUIRE(read.has_value());
  const auto& generation = std::get<manager::BeginGeneration>(*read);
  REQUIRE(generation.sets.size() == 2);
  CHECK(generation.sets.at(0) == manager::BeginGeneration::Set{1, 16, 17, 0});
  CHECK(generation.sets.at(1) == manager::BeginGeneration::Set{3, 14, 0, 0});
}

TEST_CASE("a journal of before there were drained sets says what the link there names") {
  const auto read = manager::decode_command(
      unhex(read_lines("journal_older.txt").at("latest_before_drained_sets")));
  REQUIRE(read.has_value());
  const auto& latest = std::get<manager::SetLatest>(*read);
  CHECK(latest.drained == manager::DrainedSet{"a.*.T0", 0});
  CHECK(latest.target == "a.*.T1");
}

TEST_CASE("in a journal of before callers were told nobody has asked for a change") {
  const auto lines = read_lines("journal_older.txt");
  const std::vector<manager::Command> commands = before_callers();
  int read_so_far = 0;
  for (std::size_t kind = 0; kind < commands.size(); ++kind) {
    const auto line = lines.find("command" + std::to_string(kind) + "_before_callers");
    if (line == lines.end()) continue;
    ++read_so_far;
    const auto read = manager::decode_command(unhex(line->second));
    REQUIRE(read.has_value());
    CHECK(*read == commands[kind]);
  }
  CHECK(read_so_far == 7);
}

TEST_CASE("in a journal of before names waited in the drain directory no name waits") {
  const auto lines = read_lines("journal_older.txt");
  const std::vector<manager::Command> commands = before_held();
  int read_so_far = 0;
  for (std::size_t kind = 0; kind < commands.size(); ++kind) {
    const auto line = lines.find("command" + std::to_string(kind) + "_before_held");
    if (line == lines.end()) continue;
    ++read_so_far;
    const auto read = manager::decode_command(unhex(line->second));
    REQUIRE(read.has_value());
    CHECK(*read == commands[kind]);
  }
  CHECK(read_so_far == 5);
}
