#pragma once

#include <cstdint>
#include <vector>

#include "core/base/clock.h"
#include "core/base/limits.h"

/// Units of a multicast, and requests for units.
///
/// An image is sent in units of 16 KiB, because a unit is verified as a whole. A unit consists of
/// cells. Each cell travels in one datagram.
namespace stdchk::multicast {

inline constexpr std::uint64_t kUnitBytes = limits::kNameLeafBytes;
inline constexpr std::uint32_t kCellsMax = 16;                       ///< of one unit
inline constexpr std::uint32_t kUnitsMax = std::uint32_t{1} << 28U;  ///< of one multicast

/// A CellMask has a bit for each cell of a unit.
using CellMask = std::uint16_t;
inline CellMask all_cells(std::uint32_t cells) {
  return static_cast<CellMask>((std::uint32_t{1} << cells) - 1);
}

/// Names one receiver.
using ReceiverId = std::uint64_t;

/// A Want names the missing cells of consecutive units at a receiver.
struct Want {
  std::uint32_t first = 0;
  std::uint16_t count = 0;
  CellMask cells = 0;  ///< of each of these units
  bool operator==(const Want&) const = default;
};

/// An Ask is a receiver's request. It also reports rate, delay and losses of the receiver.
struct Ask {
  static constexpr std::size_t kWantsMax = 64;
  static constexpr std::uint32_t kWantedUnitsMax = 4096;  ///< in all wants together
  std::uint32_t rate_kib = 0;                             ///< KiB that arrived in the last second
  std::uint32_t delay_us = 0;    ///< from an ask to its first cell, smoothed; 0: not known yet
  std::uint32_t lost_cells = 0;  ///< found missing since the last ask
  bool by_unicast = false;       ///< multicast does not reach this receiver
  bool done = false;             ///< the receiver has all units
  bool gone = false;             ///< the receiver ends, and needs nothing more
  std::vector<Want> wants;
  bool operator==(const Ask&) const = default;
};

/// A CellAddress says which part of which unit a datagram has, and to whom it goes.
struct CellAddress {
  std::uint32_t unit = 0;
  std::uint32_t cell = 0;
  ReceiverId to = 0;  ///< 0: to all, by multicast
  bool operator==(const CellAddress&) const = default;
};

}  // namespace stdchk::multicast
