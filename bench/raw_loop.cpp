#include "bench/raw_loop.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "core/extent_header.h"

namespace stdchk::bench {

void give_up(const std::string& what) {
  std::fprintf(stderr, "client-bench: %s\n", what.c_str());
  std::exit(1);
}

void must_ok(const Status& status, const char* what) {
  if (!status.has_value()) give_up(std::string(what) + ": " + describe(status.error()));
}

double seconds_since(Time start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

RawLoop::RawLoop(const Settings& settings) : settings_(settings) {
  transport::EndpointOptions options;
  options.clock = &clock_;
  control_ = must(transport::open_endpoint("ofi:tcp", options), "endpoint");
  endpoint_ = must(transport::open_endpoint(settings.transport, options), "endpoint");
  reactor_.add(*control_);
  reactor_.add(*endpoint_);
  slots_.resize(settings.window_bytes / settings.chunk_bytes);
  memory_ =
      must(client::Memory::create(slots_.size() * stride(), {endpoint_.get()}), "window memory");
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].loop = this;
    slots_[i].data = memory_->bytes().data() + i * stride();
  }
  manager_ = connect(*control_, settings.manager);
  msg::RegisterClient hello;
  hello.secret = settings.secret;
  hello.role = "library";
  hello.pid = ::getpid();
  const auto welcome = call<msg::RegisterClient>(*manager_, hello);
  client_ = welcome.client;
  manager_->set_sender(client_.value);
  for (const msg::BenefactorInfo& info : welcome.benefactors) attach(info);
}

RawLoop::~RawLoop() {
  manager_.reset();
  targets_.clear();
  memory_.reset();
  reactor_.remove(*endpoint_);
  reactor_.remove(*control_);
}

void RawLoop::attach(const msg::BenefactorInfo& info) {
  Target target;
  for (const std::string& address : info.addresses) {
    if (address.starts_with(settings_.transport + ":")) {
      target.peer = connect(*endpoint_, address);
    }
  }
  if (target.peer == nullptr) give_up("a benefactor has no address for " + settings_.transport);
  const auto attached =
      call<msg::Attach>(*target.peer, msg::Attach{settings_.secret, client_, info.id});
  target.key = {attached.key, attached.base, attached.length};
  targets_[info.id] = std::move(target);
}

double RawLoop::run(ByteSpan image, bool copies) {
  call<msg::ClientHeartbeat>(*manager_, msg::ClientHeartbeat{client_});
  msg::OpenSession open;
  open.client = client_;
  open.parent = kRootFile;
  open.name = "raw.N0.T" + std::to_string(++runs_);
  open.want_bytes = image.size() + image.size() / 8;
  const auto opened = call<msg::OpenSession>(*manager_, open);
  std::vector<Grant> grants = opened.grants;
  std::size_t next_grant = 0;
  const Time start = std::chrono::steady_clock::now();
  const std::uint64_t bytes = limits::kExtentHeaderBytes + settings_.chunk_bytes;
  for (std::uint64_t at = 0; at < image.size(); at += settings_.chunk_bytes) {
    Slot& slot = free_slot();
    if (copies) {
      std::memcpy(slot.data + limits::kExtentHeaderBytes, image.data() + at, settings_.chunk_bytes);
    }
    for (std::size_t tried = 0; grants[next_grant % grants.size()].length < bytes; ++next_grant) {
      if (++tried > grants.size()) give_up("the benefactors have too little memory");
    }
    Grant& grant = grants[next_grant++ % grants.size()];
    slot.target = &targets_[grant.benefactor];
    slot.offset = grant.offset;
    slot.length = bytes;
    grant.offset += bytes;
    grant.length -= bytes;
    start_write(slot);
    reactor_.run_once(Duration::zero());
  }
  while (in_flight_ > 0) reactor_.run_once(std::chrono::milliseconds(1));
  const double gb_per_s = static_cast<double>(image.size()) / 1e9 / seconds_since(start);
  call<msg::CloseSession>(*manager_, msg::CloseSession{opened.session, true, 0, false});
  return gb_per_s;
}

RawLoop::Slot& RawLoop::free_slot() {
  Slot& slot = slots_[next_slot_++ % slots_.size()];
  while (slot.in_flight()) reactor_.run_once(std::chrono::milliseconds(1));
  return slot;
}

void RawLoop::start_write(Slot& slot) {
  const transport::LocalPiece piece{slot.data, slot.length, memory_->region(*endpoint_)};
  ++in_flight_;
  for (;;) {
    const Status started =
        slot.target->peer->link().write({&piece, 1}, slot.target->key, slot.offset, slot);
    if (started.has_value()) return;
    if (started.error().code != Code::kWouldBlock) must_ok(started, "raw write");
    reactor_.run_once(std::chrono::milliseconds(1));
  }
}

std::unique_ptr<rpc::Peer> RawLoop::connect(transport::Endpoint& endpoint,
                                            const std::string& address) {
  return must(rpc::Peer::connect(reactor_, endpoint, address, *this, limits::kConnectDeadline),
              "connect");
}

template <class M>
typename M::Reply RawLoop::call(rpc::Peer& peer, M request) {
  std::optional<rpc::Answer> answer;
  peer.call(std::move(request), limits::kCallDeadline,
            [&](rpc::Answer got) { answer = std::move(got); });
  while (!answer.has_value()) reactor_.run_once(std::chrono::milliseconds(1));
  if (!answer->has_value()) give_up(describe(answer->error().error));
  return std::get<typename M::Reply>(std::move(**answer));
}

}  // namespace stdchk::bench
