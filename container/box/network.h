#pragma once

#include <string>
#include <vector>

#include "container/description/description.h"
#include "container/program/program.h"
#include "core/base/descriptor.h"
#include "core/base/mutex.h"

/// The network of a job's containers. Each host has a bridge, each container a virtual Ethernet
/// pair. A VXLAN device (RFC 7348) connects the bridges of several hosts. The names are short
/// enough for IFNAMSIZ.
namespace stdchk::container {

/// The MTU is that of VXLAN over Ethernet on one host, too: a container may move to another host.
inline constexpr int kBoxMtu = 1400;

/// The Ethernet address of the container with this IPv4 address. It stays when the container moves
/// to another node. Otherwise the other containers would send to the address of the removed
/// interface until their ARP entries end, which takes up to a minute.
std::string ethernet_address_of(const std::string& address);

/// A JobNetwork is the part of a job's network on this host, which several nodes may share.
///
/// Owns: the bridge and the VXLAN device, together with the other nodes. Each holds a shared lock
///   on a file in /run, which ends with its process. The node that gets the lock alone removes the
///   devices.
class JobNetwork {
 public:
  explicit JobNetwork(NetworkDescription network);
  /// Makes the absent devices of the network, at the first call. Any thread.
  Outcome<void> make();
  /// Removes the devices, unless another node of this host still has the network.
  void remove();
  /// For a node that was killed: removes its pairs of devices, and the network as remove() does.
  void remove_after(const std::string& tag);
  const std::string& bridge() const { return bridge_; }
  const NetworkDescription& description() const { return network_; }

 private:
  Outcome<void> share();
  std::string lock_path() const;

  Outcome<void> make_devices();

  const NetworkDescription network_;
  const std::string bridge_;
  const std::string tunnel_;
  Mutex mutex_;
  bool made_ STDCHK_GUARDED_BY(mutex_) = false;
  Descriptor lock_;
};

/// A BoxNetwork is a container's network namespace, with one interface "eth0" and the address of
/// the container.
///
/// Owns: the namespace and the pair, until remove().
class BoxNetwork {
 public:
  /// `tag` is unique on this host for each node; at most 6 characters.
  BoxNetwork(const std::string& tag, std::uint32_t box);
  /// With `locked`, drops all packets from the start, except packets of the loopback interface.
  Outcome<void> make(const JobNetwork& job, const std::string& address, bool locked) const;
  void remove() const;
  std::string path() const { return "/run/netns/" + name_; }

  /// Drops all packets; open() ends that. Both may be repeated.
  Outcome<void> lock() const;
  Outcome<void> open() const;
  /// Tells all switches of the network, by an ARP announcement (RFC 5227, section 2.3), where
  /// the container is. A VXLAN device would send to the container's earlier host for 300 s.
  Outcome<void> announce() const;
  /// How many sockets have sent bytes that are not acknowledged.
  Outcome<int> unacknowledged() const;

 private:
  const std::string name_;
  const std::string outside_;
};

}  // namespace stdchk::container
