// Tests the translation of libvirt's domains into command lines that can be forked.
#include "fork/vm/domain.h"

#include <algorithm>
#include <string>
#include <vector>

#include "fork/vm/qemu_command.h"
#include "tests/support/catch.h"

namespace stdchk::fork::vm {
namespace {

using Words = std::vector<std::string>;

/// As `virsh domxml-to-native qemu-argv` of libvirt 9 prints it.
constexpr const char* kDomain = R"(LC_ALL=C \
PATH=/usr/local/sbin:/usr/bin \
USER=root \
/usr/bin/qemu-system-x86_64 \
-name guest=demo,debug-threads=on \
-S \
-object '{"qom-type":"secret","id":"masterKey0","format":"raw","file":"/var/lib/libvirt/key.aes"}' \
-machine pc-i440fx-7.2,usb=off,dump-guest-core=off,memory-backend=pc.ram \
-accel tcg \
-m 1024 \
-object '{"qom-type":"memory-backend-ram","id":"pc.ram","size":1073741824}' \
-overcommit mem-lock=off \
-no-user-config \
-nodefaults \
-chardev socket,id=charmonitor,path=/var/lib/libvirt/monitor.sock,server=on,wait=off \
-mon chardev=charmonitor,id=monitor,mode=control \
-no-shutdown \
-device '{"driver":"virtio-serial-pci","id":"virtio-serial0","bus":"pci.0","addr":"0x5"}' \
-blockdev '{"driver":"file","filename":"/images/a disk.qcow2","node-name":"libvirt-2-storage"}' \
-blockdev '{"node-name":"libvirt-2-format","read-only":false,"driver":"qcow2","file":"libvirt-2-storage"}' \
-device '{"driver":"virtio-blk-pci","bus":"pci.0","addr":"0x7","drive":"libvirt-2-format","id":"virtio-disk0"}' \
-blockdev '{"driver":"file","filename":"/images/cd.iso","node-name":"libvirt-1-storage","read-only":true}' \
-device '{"driver":"ide-cd","bus":"ide.0","unit":0,"drive":"libvirt-1-storage","id":"ide0-0-0"}' \
-netdev '{"type":"tap","fd":"31","id":"hostnet0"}' \
-device '{"driver":"virtio-net-pci","netdev":"hostnet0","id":"net0","mac":"52:54:00:12:34:56"}' \
-netdev user,id=hostnet1 \
-device '{"driver":"virtio-net-pci","netdev":"hostnet1","id":"net1"}' \
-chardev pty,id=charserial0 \
-device '{"driver":"isa-serial","chardev":"charserial0","id":"serial0"}' \
-chardev socket,id=charchannel0,path=/var/lib/libvirt/agent,server=on,wait=off \
-device '{"driver":"virtserialport","bus":"virtio-serial0.0","chardev":"charchannel0","id":"channel0"}' \
-audiodev '{"id":"audio1","driver":"none"}' \
-vnc 127.0.0.1:0,audiodev=audio1 \
-device '{"driver":"VGA","id":"video0","bus":"pci.0","addr":"0x2"}' \
-device '{"driver":"virtio-balloon-pci","id":"balloon0","bus":"pci.0","addr":"0x6"}' \
-sandbox on,obsolete=deny,spawn=deny \
-msg timestamp=on
)";

bool has(const Words& words, const std::string& text) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word.find(text) != std::string::npos; });
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const auto at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), with);
}

}  // namespace

TEST_CASE("a shell's words are read with their quotes") {
  CHECK(shell_words("a 'b c' \"d \\\" e\" f\\ g \\\n h ''").value() ==
        Words{"a", "b c", "d \" e", "f g", "h", ""});
  CHECK(shell_words("'it'\\''s'").value() == Words{"it's"});
  CHECK(shell_words(R"("a\b" 'c\d')").value() == Words{"a\\b", "c\\d"});
  CHECK(shell_words(" \n\t ").value().empty());
  CHECK_FALSE(shell_words("a 'b"));
}

TEST_CASE("a domain of libvirt becomes a command line that can be forked") {
  const auto words = translate_domain(kDomain);
  REQUIRE(words);
  CHECK(words->front() == "/usr/bin/qemu-system-x86_64");
  CHECK(has(*words, "pc-i440fx-7.2,usb=off,dump-guest-core=off"));
  for (const char* gone : {"memory-backend", "masterKey0", "monitor", "hostnet0", "charchannel0",
                           "blockdev", "-S", "-no-shutdown", "-sandbox", "-vnc", "audio"}) {
    INFO(gone);
    CHECK_FALSE(has(*words, gone));
  }
  for (const char* kept : {"hostnet1", "charserial0", "isa-serial", "VGA", "-nodefaults"}) {
    INFO(kept);
    CHECK(has(*words, kept));
  }
  const auto command = QemuCommand::parse(*words);
  REQUIRE(command);
  CHECK(command->memory_bytes() == std::uint64_t{1} << 30);
  CHECK(command->drives() == Words{"/images/a disk.qcow2"});
  CHECK(command->has_balloon());
  CHECK(has(command->words(), R"("free-page-reporting":true)"));
  CHECK(has(*words, "if=none,id=libvirt-2-format,file=/images/a disk.qcow2,format=qcow2"));
  CHECK(has(*words, "if=none,id=libvirt-1-storage,file=/images/cd.iso,format=raw,readonly=on"));
}

TEST_CASE("a drive stands before the device that uses it") {
  const auto words = translate_domain(kDomain).value();
  const auto drive = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return word.starts_with("if=none,id=libvirt-2-format");
  });
  REQUIRE(drive + 2 < words.end());
  CHECK(drive[1] == "-device");
  CHECK(drive[2].find("\"drive\":\"libvirt-2-format\"") != std::string::npos);
}

TEST_CASE("a machine without a screen has no display") {
  const auto words = translate_domain(kDomain).value();
  const auto display = std::find(words.begin(), words.end(), "-display");
  REQUIRE(display + 1 < words.end());
  CHECK(display[1] == "none");
}

TEST_CASE("a domain that forks cannot keep apart is refused with a reason") {
  CHECK(translate_domain(replaced(kDomain, "usb=off", "pflash0=libvirt-pflash0-format"))
            .error()
            .text.find("UEFI") != std::string::npos);
  const auto by_network =
      translate_domain(replaced(kDomain, R"("driver":"file","filename":"/images/a disk.qcow2")",
                                R"("driver":"rbd","pool":"rbd","image":"demo")"));
  REQUIRE_FALSE(by_network);
  CHECK(by_network.error().text.find("only files") != std::string::npos);
  CHECK_FALSE(translate_domain("LC_ALL=C \\\nUSER=root\n"));
  CHECK_FALSE(translate_domain("/usr/bin/qemu -device '{broken'"));
  CHECK_FALSE(translate_domain("/usr/bin/qemu what -device VGA"));
}

TEST_CASE("a file of a domain that does not exist is named") {
  CHECK(command_of_domain("/nonexistent/domain.xml").error().text.find("domain.xml") !=
        std::string::npos);
}

}  // namespace stdchk::fork::vm
