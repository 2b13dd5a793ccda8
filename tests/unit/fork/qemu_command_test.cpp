#include "fork/vm/qemu_command.h"

#include <algorithm>

#include "tests/support/catch.h"

namespace stdchk::fork::vm {
namespace {

std::string value_of(const std::vector<std::string>& words, const std::string& option) {
  const auto found = std::find(words.begin(), words.end(), option);
  REQUIRE(found + 1 < words.end());
  return found[1];
}

TEST_CASE("the memory is read in QEMU's own units") {
  CHECK(QemuCommand::parse({"qemu"}).value().memory_bytes() == std::uint64_t{128} << 20);
  CHECK(QemuCommand::parse({"qemu", "-m", "512"}).value().memory_bytes() == std::uint64_t{512}
                                                                                << 20);
  CHECK(QemuCommand::parse({"qemu", "-m", "2G"}).value().memory_bytes() == std::uint64_t{2} << 30);
  CHECK(QemuCommand::parse({"qemu", "-m", "size=1G,slots=2"}).value().memory_bytes() ==
        std::uint64_t{1} << 30);
  CHECK_FALSE(QemuCommand::parse({"qemu", "-m", "many"}));
  CHECK_FALSE(QemuCommand::parse({"qemu", "-m", "0"}));
}

TEST_CASE("the parent shares its memory file, and a clone changes its own copy") {
  const auto command = QemuCommand::parse({"qemu", "-m", "256M"}).value();
  const auto parent = command.at({"/f", "/ram", Memory::kShared, false, 0, {}});
  CHECK(value_of(parent, "-object") ==
        "memory-backend-file,id=stdchk-ram,size=256M,mem-path=/ram,share=on");
  CHECK(value_of(parent, "-machine") == "pc,memory-backend=stdchk-ram");
  CHECK(value_of(parent, "-qmp") == "unix:/f/qmp,server=on,wait=off");
  CHECK(std::find(parent.begin(), parent.end(), "-incoming") == parent.end());
  const auto clone = command.at({"/g", "/ram", Memory::kPrivate, true, 3, {}});
  CHECK(value_of(clone, "-object").ends_with(",share=off"));
  CHECK(value_of(clone, "-incoming") == "defer");
}

TEST_CASE("the machine's type is kept") {
  const auto command = QemuCommand::parse({"qemu", "-M", "q35,smm=off"}).value();
  CHECK(value_of(command.at({}), "-M") == "q35,smm=off,memory-backend=stdchk-ram");
}

TEST_CASE("the clone's id stands in file names") {
  const auto command = QemuCommand::parse({"qemu", "-serial", "file:/tmp/c-{id}-{id}"}).value();
  CHECK(value_of(command.at({"", "", Memory::kPrivate, true, 12, {}}), "-serial") ==
        "file:/tmp/c-12-12");
}

TEST_CASE("a balloon device reports free pages, unless the user says otherwise") {
  const auto device = [](std::vector<std::string> words) {
    return value_of(QemuCommand::parse(std::move(words)).value().words(), "-device");
  };
  CHECK(device({"qemu", "-device", "virtio-balloon-pci"}) ==
        "virtio-balloon-pci,free-page-reporting=on");
  CHECK(device({"qemu", "-device", "virtio-balloon,free-page-reporting=off"}) ==
        "virtio-balloon,free-page-reporting=off");
  CHECK(device({"qemu", "-device", R"({"driver":"virtio-balloon-pci"})"}) ==
        R"({"driver":"virtio-balloon-pci","free-page-reporting":true})");
  CHECK(device({"qemu", "-device", "virtio-rng-pci"}) == "virtio-rng-pci");
  CHECK(QemuCommand::parse({"qemu", "-device", "virtio-balloon-pci"}).value().has_balloon());
  auto command = QemuCommand::parse({"qemu", "-device", "virtio-rng-pci"}).value();
  CHECK_FALSE(command.has_balloon());
  for (int i = 0; i < 2; i++) command.add_balloon();
  CHECK(command.has_balloon());
  CHECK(command.words() ==
        std::vector<std::string>{"qemu", "-device", "virtio-rng-pci", "-device",
                                 "virtio-balloon-pci,id=stdchk-balloon,free-page-reporting=on"});
  CHECK(QemuCommand::parse(command.words()).value().words() == command.words());
}

TEST_CASE("a machine in a network has an interface with its own hardware address") {
  const auto command = QemuCommand::parse({"qemu"}).value();
  Place place;
  const auto without = command.at(place);
  CHECK(std::find(without.begin(), without.end(), "-netdev") == without.end());
  place.port = {"m1", "02:5f:01:5a:00:03", 9};
  CHECK(value_of(command.at(place), "-netdev") == "tap,id=stdchk-net,fd=9");
  CHECK(command.at(place).back() ==
        "virtio-net-pci,id=stdchk-nic,netdev=stdchk-net,mac=02:5f:01:5a:00:03,host_mtu=1400,"
        "romfile=");
}

TEST_CASE("a clone's writable disks are overlays, and others stay") {
  const auto command =
      QemuCommand::parse({"qemu", "-drive", "file=/a.raw,format=raw,if=virtio", "-drive",
                          "file=/cd.iso,media=cdrom", "-drive", "if=virtio,file=/b.qcow2"})
          .value();
  CHECK(command.drives() == std::vector<std::string>{"/a.raw", "/b.qcow2"});
  const auto words = command.at({"", "", Memory::kPrivate, true, 1, {"/o1", "/o2"}});
  const auto has = [&](const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  CHECK(has("file=/o1,format=qcow2,if=virtio"));
  CHECK(has("file=/cd.iso,media=cdrom"));
  CHECK(has("file=/o2,format=qcow2,if=virtio"));
}

TEST_CASE("options that forks cannot keep apart are refused with a reason") {
  CHECK(QemuCommand::parse({"qemu", "-incoming", "defer"}).error().text ==
        "-incoming cannot be used: stdchk itself gives forks their state.");
  CHECK_FALSE(QemuCommand::parse({"qemu", "-daemonize"}));
  CHECK_FALSE(QemuCommand::parse({"qemu", "-object", "memory-backend-ram,id=x"}));
  CHECK_FALSE(QemuCommand::parse({"qemu", "-drive", "if=virtio"}));
  CHECK(QemuCommand::parse({"qemu", "-object", "rng-random,id=r"}));
  CHECK_FALSE(QemuCommand::parse({}));
}

}  // namespace
}  // namespace stdchk::fork::vm
