#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/scale_world.h"
#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "core/values/types.h"

/// The peers of a ScaleWorld: benefactors without memory, and clients without bytes.
namespace stdchk::bench {

/// A ScaleBenefactor lends memory that nobody writes. It sends heartbeats, and answers at once.
class ScaleBenefactor final : public Actor {
 public:
  ScaleBenefactor(ScaleWorld& world, std::uint32_t number, std::uint64_t arena_bytes);
  void act(std::uint32_t what) override;
  void got(msg::Envelope message) override;
  bool registered() const { return bool{id_}; }

 private:
  void answer(const msg::RequestEnvelope& request);

  ScaleWorld& world_;
  const std::uint32_t number_;
  const std::uint32_t actor_;
  const std::uint64_t arena_bytes_;
  std::uint64_t calls_ = 0;
  BenefactorId id_;
};

/// The calls whose answers are timed.
enum class ScaleCall : std::uint8_t {
  kHeartbeat,
  kOpen,
  kGetMap,
  kPlace,
  kCommit,
  kUnpin,
  kRemove
};
inline constexpr std::size_t kScaleCalls = 7;
inline constexpr std::array<const char*, kScaleCalls> kScaleCallNames = {
    "heartbeat", "open", "get map", "place", "commit", "unpin", "remove"};

/// The settings and counters that all clients of a ScaleWorld share.
struct ScaleLoad {
  std::uint32_t chunk_bytes = 0;
  std::uint32_t chunks = 0;  ///< of an image
  std::uint32_t batch = 0;   ///< names in one Place
  std::uint32_t kept = 2;    ///< images of each client; it removes older images
  Duration period{};         ///< between two images of a client
  std::vector<FileId> folders;
  bool writes = true;  ///< false: clients begin no further image
  bool counts = false;
  std::uint64_t images = 0;   ///< committed while `counts`
  std::uint64_t calls = 0;    ///< answered while `counts`
  std::uint64_t notices = 0;  ///< that came while `counts`
  std::array<std::vector<float>, kScaleCalls> answers_ms;
};

/// A ScaleClient writes an image in each period. It opens a session, and reads the previous image's
/// map. It looks up and places its chunks, commits, and removes an older image. All its chunks are
/// new. The writing takes half of the period.
class ScaleClient final : public Actor {
 public:
  static constexpr std::uint32_t kRegister = 0;
  static constexpr std::uint32_t kBeat = 1;
  static constexpr std::uint32_t kStep = 2;        ///< the image's next call
  static constexpr std::uint32_t kMakeFolder = 3;  ///< the folder with the client's number
  static constexpr std::uint32_t kPurge = 4;       ///< removes the newest images, one by one

  ScaleClient(ScaleWorld& world, ScaleLoad& load, std::uint32_t number);
  void act(std::uint32_t what) override;
  void got(msg::Envelope message) override;
  /// Begins the first image at that time.
  void begin_at(Time at);
  std::uint32_t actor() const { return actor_; }
  bool registered() const { return bool{id_}; }
  bool idle() const { return !busy_; }

 private:
  template <class M>
  void ask(ScaleCall what, M request);
  void answered(ScaleCall what);
  std::string image_name(std::uint64_t image) const;
  FileId folder() const { return load_.folders[number_ % load_.folders.size()]; }
  std::uint64_t room() const;
  void open();
  void place();
  bool carve(Extent& place);
  void commit();
  void remove(std::uint64_t image);
  void next(ScaleCall what, Time at);
  void got_reply(const msg::OpenSession::Reply& reply);
  void got_reply(const msg::Place::Reply& reply);
  void committed();
  void end_image();

  ScaleWorld& world_;
  ScaleLoad& load_;
  const std::uint32_t number_;
  const std::uint32_t actor_;
  ClientId id_;
  std::uint64_t calls_ = 0;
  std::uint64_t beat_call_ = 0;
  std::uint64_t step_call_ = 0;
  Time beat_asked_{};
  Time step_asked_{};
  ScaleCall step_ = ScaleCall::kOpen;
  bool busy_ = false;
  Time began_{};  ///< of the image
  std::uint64_t image_ = 0;
  std::uint64_t purged_ = 0;
  SessionId session_;
  FileId similar_;
  Version similar_version_ = 0;
  std::vector<Grant> grants_;
  std::size_t grant_ = 0;        ///< index of the grant that is carved now
  std::uint64_t carved_ = 0;     ///< bytes of it
  std::uint64_t granted_ = 0;    ///< bytes of all grants
  std::uint32_t looked_up_ = 0;  ///< chunks
  std::uint32_t placed_ = 0;     ///< chunks
  std::vector<Extent> places_;
};

}  // namespace stdchk::bench
