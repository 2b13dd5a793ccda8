#pragma once

#include <type_traits>
#include <variant>

#include "core/messages/messages.h"

/// The route of each request: which role sends it to which role. Every request must be in exactly
/// one list, or this header does not compile. So nobody can forget a new request.
namespace stdchk::msg {

enum class Route {
  kClientToManager,
  kBenefactorToManager,
  kStandbyToManager,
  kManagerToBenefactor,
  kReaderToBenefactor,  ///< a client, or a benefactor that copies
};

namespace detail {

template <class... Requests>
struct Those {
  template <class M>
  static constexpr bool has = (std::is_same_v<M, Requests> || ...);
};

using ClientToManager =
    Those<RegisterClient, ClientHeartbeat, GoodbyeClient, ListBenefactors, Lookup, GetAttributes,
          ReadDirectory, SetAttributes, MakeDirectory, MakeSymlink, ReadSymlink, Remove, Rename,
          SetXattr, GetXattrs, StatPool, OpenSession, Place, Commit, CloseSession, GetMap, Unpin,
          DrainNow, ListAborted, GetPolicy, SetPolicy, ListSets, GetDebt, Scrub, CheckMetadata,
          CollectGarbage, GetStripe, ReportWrongCopy, ResumeSession, ConfirmDrained>;
using BenefactorToManager = Those<RegisterBenefactor, BenefactorHeartbeat>;
using StandbyToManager = Those<FollowManager>;
using ManagerToBenefactor =
    Those<FenceClient, DrainPieces, DrainFinish, MirrorChange, MoveExtents, CopyExtents,
          CheckExtents, BuildStripe, KeepLog, ReadLog, ReportExtents, ForgetExtents, FindDrained>;
using ReaderToBenefactor = Those<Attach>;

template <class M>
constexpr int times_listed() {
  return ClientToManager::has<M> + BenefactorToManager::has<M> + StandbyToManager::has<M> +
         ManagerToBenefactor::has<M> + ReaderToBenefactor::has<M>;
}
template <class V>
struct EachOnce;
template <class... M>
struct EachOnce<std::variant<M...>> : std::bool_constant<((times_listed<M>() == 1) && ...)> {};
static_assert(EachOnce<AnyRequest>::value, "a request has no route, or two");

}  // namespace detail

template <class M>
constexpr Route route_of() {
  if (detail::ClientToManager::has<M>) return Route::kClientToManager;
  if (detail::BenefactorToManager::has<M>) return Route::kBenefactorToManager;
  if (detail::StandbyToManager::has<M>) return Route::kStandbyToManager;
  if (detail::ManagerToBenefactor::has<M>) return Route::kManagerToBenefactor;
  return Route::kReaderToBenefactor;
}

}  // namespace stdchk::msg
