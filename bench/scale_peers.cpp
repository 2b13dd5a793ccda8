#include "bench/scale_peers.h"

#include <algorithm>
#include <cstring>

#include "bench/measuring.h"
#include "core/base/limits.h"
#include "core/chunk/extent_header.h"

namespace stdchk::bench {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kDeadlineMs = 10000;
constexpr std::uint64_t kFirstGrant = 2 * limits::kGrantBytesDefault;  // session_opener.cpp
constexpr std::uint64_t kGrowth = 4;                                   // space_keeper.cpp

/// A name that looks random like a hash.
ChunkName name_of(std::uint64_t number) {
  Prng prng(number + 1);
  ChunkName name;
  for (std::size_t at = 0; at < name.bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = prng.next();
    std::memcpy(name.bytes.data() + at, &word, sizeof(word));
  }
  return name;
}

msg::ReplyEnvelope reply_in(msg::Envelope&& message) {
  auto reply = std::get<msg::ReplyEnvelope>(std::move(message));
  if (reply.code != Code{}) give_up(describe(Error{reply.code, 0, "a call"}) + " " + reply.detail);
  return reply;
}

}  // namespace

// ---- benefactors --------------------------------------------------------------------------------

ScaleBenefactor::ScaleBenefactor(ScaleWorld& world, std::uint32_t number, std::uint64_t arena_bytes)
    : world_(world), number_(number), actor_(world.add(*this)), arena_bytes_(arena_bytes) {
  world_.schedule(world_.now(), actor_, 0);
}

void ScaleBenefactor::act(std::uint32_t) {
  if (id_) {
    world_.schedule(world_.arrived() + limits::kHeartbeatInterval, actor_, 0);
    return world_.send(actor_,
                       msg::RequestEnvelope{++calls_, kDeadlineMs, id_.value,
                                            msg::Request{msg::BenefactorHeartbeat{id_, false}}});
  }
  msg::RegisterBenefactor request;
  request.life_high = 1;
  request.life_low = number_ + 1;
  request.addresses = {"tcp:10.1." + std::to_string(number_ / 250) + "." +
                       std::to_string(number_ % 250 + 1) + ":7471"};
  request.host_token = request.host_name = "node" + std::to_string(number_) + ".cluster";
  request.arena_bytes = arena_bytes_;
  request.log_bytes_max = 16 * limits::kGiB;
  world_.send(actor_,
              msg::RequestEnvelope{++calls_, kDeadlineMs, 0, msg::Request{std::move(request)}});
}

void ScaleBenefactor::got(msg::Envelope message) {
  if (const auto* request = std::get_if<msg::RequestEnvelope>(&message)) return answer(*request);
  const auto reply = reply_in(std::move(message));
  const auto* registered = std::get_if<msg::RegisterBenefactor::Reply>(&reply.body);
  if (registered == nullptr) return;
  id_ = registered->benefactor;
  world_.schedule(world_.now() + number_ * 2ms, actor_, 0);
}

void ScaleBenefactor::answer(const msg::RequestEnvelope& request) {
  msg::ReplyEnvelope reply;
  reply.call_id = request.call_id;
  if (std::holds_alternative<msg::FenceClient>(request.body)) {
    reply.body = msg::Reply{msg::FenceClient::Reply{true}};
  } else if (std::holds_alternative<msg::KeepLog>(request.body)) {
    reply.body = msg::Reply{msg::KeepLog::Reply{}};
  } else {
    give_up("a benefactor got a request that this bench does not know");
  }
  world_.send_later(actor_, reply);
}

// ---- clients ------------------------------------------------------------------------------------

ScaleClient::ScaleClient(ScaleWorld& world, ScaleLoad& load, std::uint32_t number)
    : world_(world), load_(load), number_(number), actor_(world.add(*this)) {
  places_.resize(load_.chunks);
  grants_.reserve(64);
}

void ScaleClient::begin_at(Time at) {
  step_ = ScaleCall::kOpen;
  world_.schedule(at, actor_, kStep);
}

template <class M>
void ScaleClient::ask(ScaleCall what, M request) {
  const bool beat = what == ScaleCall::kHeartbeat;
  (beat ? beat_call_ : step_call_) = ++calls_;
  (beat ? beat_asked_ : step_asked_) = world_.arrived();
  world_.send(actor_, msg::RequestEnvelope{calls_, kDeadlineMs, id_.value,
                                           msg::Request{std::move(request)}});
}

/// Notes how long the answer took that has come now.
void ScaleClient::answered(ScaleCall what) {
  if (!load_.counts) return;
  const Time asked = what == ScaleCall::kHeartbeat ? beat_asked_ : step_asked_;
  const std::chrono::duration<float, std::milli> took = world_.now() - asked;
  load_.answers_ms[static_cast<std::size_t>(what)].push_back(took.count());
  ++load_.calls;
}

std::string ScaleClient::image_name(std::uint64_t image) const {
  return "app.N" + std::to_string(number_) + ".T" + std::to_string(image);
}

void ScaleClient::act(std::uint32_t what) {
  switch (what) {
    case kRegister: {
      msg::RegisterClient request;
      request.host_token = request.host_name = "node" + std::to_string(number_ % 500) + ".cluster";
      request.pid = number_;
      request.role = "mount";
      return ask(ScaleCall::kOpen, std::move(request));
    }
    case kBeat:
      world_.schedule(world_.arrived() + limits::kHeartbeatInterval, actor_, kBeat);
      if (beat_call_ != 0) return;  // the last heartbeat is not answered yet
      return ask(ScaleCall::kHeartbeat, msg::ClientHeartbeat{id_, {}, {}, 0});
    case kMakeFolder: {
      msg::MakeDirectory request;
      request.client = id_;
      request.parent = kRootFile;
      request.name = "job" + std::to_string(number_);
      request.mode = 0755;
      return ask(ScaleCall::kOpen, std::move(request));
    }
    case kPurge:
      if (purged_ == load_.kept || purged_ == image_) return;
      busy_ = true;
      step_ = ScaleCall::kUnpin;  // no further image follows
      return remove(image_ - purged_++);
    default:
      if (purged_ > 0) return;  // no further image begins
      break;
  }
  switch (step_) {
    case ScaleCall::kOpen:
      return open();
    case ScaleCall::kGetMap:
      return ask(step_, msg::GetMap{id_, similar_, similar_version_, 0});
    case ScaleCall::kPlace:
      return place();
    case ScaleCall::kCommit:
      return commit();
    case ScaleCall::kUnpin:
      return ask(step_, msg::Unpin{id_, similar_, similar_version_});
    case ScaleCall::kRemove:
      return remove(image_ - load_.kept);
    case ScaleCall::kHeartbeat:
      break;
  }
}

void ScaleClient::next(ScaleCall what, Time at) {
  step_ = what;
  world_.schedule(std::max(at, world_.now() + ScaleWorld::kNetwork), actor_, kStep);
}

void ScaleClient::open() {
  if (!load_.writes) return;
  busy_ = true;
  began_ = world_.arrived();
  ++image_;
  grants_.clear();
  grant_ = carved_ = granted_ = looked_up_ = placed_ = 0;
  msg::OpenSession request;
  request.client = id_;
  request.parent = folder();
  request.name = image_name(image_);
  request.mode = 0644;
  request.truncate = true;
  request.want_bytes = kFirstGrant;
  ask(ScaleCall::kOpen, std::move(request));
}

/// Bytes of the grants that no chunk uses yet.
std::uint64_t ScaleClient::room() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = grant_; i < grants_.size(); ++i) bytes += grants_[i].length;
  return bytes - carved_;
}

void ScaleClient::place() {
  msg::Place request;
  request.session = session_;
  request.unit_bytes = static_cast<std::uint32_t>(extent_bytes(load_.chunk_bytes));
  const std::uint32_t until =
      placed_ < looked_up_ ? looked_up_ : std::min(looked_up_ + load_.batch, load_.chunks);
  const std::uint64_t first = (std::uint64_t{number_} << 40) + image_ * load_.chunks;
  for (; looked_up_ < until; ++looked_up_) {
    request.chunks.push_back({name_of(first + looked_up_), load_.chunk_bytes});
  }
  // As the client library: it asks ahead, for a multiple of what it was granted.
  const std::uint64_t low = std::min(limits::kWindowBytesDefault, granted_ / 2);
  if (room() < low || placed_ < looked_up_ - request.chunks.size()) {
    request.want_bytes = std::max(limits::kGrantBytesDefault, kGrowth * granted_);
  }
  ask(ScaleCall::kPlace, std::move(request));
}

/// Takes the place of the next chunk from the grants. False: there is no room.
bool ScaleClient::carve(Extent& place) {
  const std::uint64_t bytes = extent_bytes(load_.chunk_bytes);
  while (grant_ < grants_.size() && carved_ + bytes > grants_[grant_].length) {
    ++grant_;
    carved_ = 0;
  }
  if (grant_ == grants_.size()) return false;
  place = {grants_[grant_].benefactor, grants_[grant_].offset + carved_};
  carved_ += bytes;
  return true;
}

void ScaleClient::commit() {
  msg::Commit request;
  request.session = session_;
  const std::uint64_t first = (std::uint64_t{number_} << 40) + image_ * load_.chunks;
  for (std::uint32_t i = 0; i < load_.chunks; ++i) {
    request.written.chunks.push_back({name_of(first + i), load_.chunk_bytes, i + 1, {places_[i]}});
    request.written.slices.push_back(
        {std::uint64_t{i} * load_.chunk_bytes, load_.chunk_bytes, 0, i});
  }
  request.size_bytes = std::uint64_t{load_.chunks} * load_.chunk_bytes;
  request.mtime_ns = world_.now().time_since_epoch().count();
  request.end = true;
  request.naming = NamingState::kOn;
  ask(ScaleCall::kCommit, std::move(request));
}

void ScaleClient::remove(std::uint64_t image) {
  ask(ScaleCall::kRemove, msg::Remove{id_, folder(), image_name(image), false});
}

void ScaleClient::got_reply(const msg::OpenSession::Reply& reply) {
  session_ = reply.session;
  similar_ = reply.similar_file;
  similar_version_ = reply.similar_version;
  grants_ = reply.grants;
  for (const Grant& grant : grants_) granted_ += grant.length;
  next(similar_ ? ScaleCall::kGetMap : ScaleCall::kPlace, {});
}

void ScaleClient::got_reply(const msg::Place::Reply& reply) {
  for (const Grant& grant : reply.grants) {
    grants_.push_back(grant);
    granted_ += grant.length;
  }
  while (placed_ < looked_up_ && carve(places_[placed_])) ++placed_;
  if (placed_ < looked_up_) return next(ScaleCall::kPlace, {});
  const bool all = placed_ == load_.chunks;
  next(all ? ScaleCall::kCommit : ScaleCall::kPlace,
       began_ + load_.period / 2 * placed_ / load_.chunks);
}

void ScaleClient::committed() {
  if (load_.counts) ++load_.images;
  if (similar_) return next(ScaleCall::kUnpin, {});
  end_image();
}

/// Removes an older image, or waits for the next period.
void ScaleClient::end_image() {
  if (step_ != ScaleCall::kRemove && image_ > load_.kept) return next(ScaleCall::kRemove, {});
  busy_ = false;
  next(ScaleCall::kOpen, began_ + load_.period);
}

void ScaleClient::got(msg::Envelope message) {
  if (std::holds_alternative<msg::NoticeEnvelope>(message)) {
    load_.notices += load_.counts ? 1 : 0;
    return;
  }
  const auto reply = reply_in(std::move(message));
  if (reply.call_id == beat_call_) {
    beat_call_ = 0;
    return answered(ScaleCall::kHeartbeat);
  }
  if (reply.call_id != step_call_) give_up("an answer to another call");
  if (const auto* registered = std::get_if<msg::RegisterClient::Reply>(&reply.body)) {
    id_ = registered->client;
    return world_.schedule(world_.now() + limits::kHeartbeatInterval, actor_, kBeat);
  }
  if (const auto* made = std::get_if<msg::MakeDirectory::Reply>(&reply.body)) {
    load_.folders[number_] = made->attributes.id;
    return;
  }
  if (purged_ > 0) {
    busy_ = false;
    return world_.schedule(world_.now() + ScaleWorld::kNetwork, actor_, kPurge);
  }
  answered(step_);
  if (const auto* opened = std::get_if<msg::OpenSession::Reply>(&reply.body)) {
    got_reply(*opened);
  } else if (std::holds_alternative<msg::GetMap::Reply>(reply.body)) {
    next(ScaleCall::kPlace, {});
  } else if (const auto* placed = std::get_if<msg::Place::Reply>(&reply.body)) {
    got_reply(*placed);
  } else if (std::holds_alternative<msg::Commit::Reply>(reply.body)) {
    committed();
  } else {
    end_image();
  }
}

}  // namespace stdchk::bench
