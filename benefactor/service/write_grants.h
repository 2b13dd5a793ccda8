#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "core/crypto/secret.h"
#include "core/values/types.h"
#include "transport/transport.h"

namespace stdchk::benefactor {

/// A WriteGrants knows which client may write which part of the arena.
///
/// For each byte the newest grant counts that was presented, or the benefactor's own write that
/// came after it. A client that gave space back loses it when the next owner presents a grant.
/// An old grant that a client presents late opens nothing.
///
/// Threads: the reactor's.
/// Limits: one entry for each run of bytes with one owner. Each grant and each own write adds at
///   most two entries.
class WriteGrants {
 public:
  /// Grant `number` gives the part to the client, where nothing newer holds.
  void grant(std::uint64_t offset, std::uint64_t length, GrantId number, ClientId client);
  /// The benefactor writes there itself. Grants below `before` open the part no more.
  void close(std::uint64_t offset, std::uint64_t length, GrantId before);
  bool may_write(std::uint64_t offset, std::uint64_t length, ClientId client) const;
  /// Grows when a part goes from one client to another client or to the benefactor.
  std::uint64_t revision() const { return revision_; }
  std::size_t part_count() const { return parts_.size(); }

 private:
  struct Part {
    std::uint64_t end = 0;
    GrantId number;   ///< grants with smaller numbers open nothing here
    ClientId client;  ///< none: nobody may write
    bool continues(const Part& next) const {
      return number == next.number && client == next.client;
    }
  };
  using Parts = std::map<std::uint64_t, Part>;  ///< by offset; they do not overlap
  void add(std::uint64_t offset, std::uint64_t end, GrantId number, ClientId client);
  void split(std::uint64_t at);
  void join(std::uint64_t offset, std::uint64_t end);

  Parts parts_;
  std::uint64_t revision_ = 0;
};

/// A ClientWriteCheck checks the writes of one client's link against the WriteGrants.
///
/// Threads: the reactor's. Errors: logs the first refusal of a link; the transport ends the link.
class ClientWriteCheck final : public transport::WriteCheck {
 public:
  /// `key`: of grants on `benefactor`. `grants` must outlive this.
  ClientWriteCheck(WriteGrants& grants, const Secret& key, BenefactorId benefactor, ClientId client)
      : grants_(grants), key_(key), benefactor_(benefactor), client_(client) {}
  bool present(const Grant& grant) override;
  bool may_write(std::uint64_t offset, std::uint64_t length) override;
  std::uint64_t revision() const override { return grants_.revision(); }

 private:
  WriteGrants& grants_;
  const Secret key_;
  const BenefactorId benefactor_;
  const ClientId client_;
};

}  // namespace stdchk::benefactor
