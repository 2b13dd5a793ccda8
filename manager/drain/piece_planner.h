#pragma once

#include <cstdint>
#include <map>

#include "manager/drain/drain_failures.h"
#include "manager/drain/drain_job.h"
#include "manager/drain/drain_load.h"
#include "manager/drain/name_mirror.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// A PiecePlanner decides which benefactor writes which pieces of a version into its temporary file.
///
/// Threads: the reactor's.
/// Errors: a version that cannot be written now is noted as failed, with the time of its next try.
/// Limits: a request has 16 MiB and limits::kMapPageSlicesMax pieces at most.
class PiecePlanner {
 public:
  /// The arguments must outlive this object.
  PiecePlanner(Pool& pool, const DrainLoad& load, const NameMirror& mirror, DrainFailures& failures)
      : pool_(pool), load_(load), mirror_(mirror), failures_(failures) {}

  /// Fills the requests of the job, for the slices that are not verified. Returns false when the job
  /// cannot start now.
  bool plan(const File& file, DrainJob& job);

 private:
  /// Requests that still grow.
  struct Plan {
    DrainJob& job;
    BenefactorId any;  ///< a usable benefactor, for pieces that none has in memory
    std::map<BenefactorId, DrainRequest> open;

    /// Adds the piece of slice `number` to the open request to the benefactor. Returns this
    /// request.
    DrainRequest& add(BenefactorId benefactor, std::uint32_t number, const msg::DrainPiece& piece);
  };
  bool plan_slice(const File& file, std::uint32_t number, Plan& plan);

  Pool& pool_;
  const DrainLoad& load_;
  const NameMirror& mirror_;
  DrainFailures& failures_;
};

}  // namespace stdchk::manager
