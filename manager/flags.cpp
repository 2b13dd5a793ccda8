#include "manager/flags.h"

#include "core/runtime/confinement.h"
#include "core/runtime/options.h"

namespace stdchk::manager {

std::optional<int> parse(Flags& flags, int argc, char** argv) {
  Options options("stdchk-manager", "Keeps the names, chunk maps and space of a stdchk pool.");
  options.text("--state", flags.state, "DIR", "keep the journal in this directory").required();
  options.text("--secret-file", flags.secret_file, "FILE", "file that holds the pool's secret")
      .required();
  options
      .text("--address-file", flags.address_file, "FILE",
            "write the manager's address into this file when it accepts links")
      .required();
  options.text("--listen", flags.listen, "HOST[:PORT]",
               "address at which others reach the manager");
  options.text("--drain", flags.drain.directory, "DIR",
               "copy images to this directory of the parallel file system, or to "
               "s3://BUCKET/PREFIX");
  options.text("--drain-endpoint", flags.drain.endpoint, "URL",
               "address of an object store that is not Amazon's, such as https://minio.site:9000");
  options.rate("--drain-rate", flags.drain.rate,
               "limit of each benefactor's drain, bytes a second");
  options.rate("--drain-total", flags.drain.total,
               "limit of all benefactors' drain together, bytes a second");
  options.on_off("--drain-yields", flags.drain.yields,
                 "drain 8 MiB/s while somebody writes, unless memory fills up");
  options.chunk_size("--chunk-size", flags.chunks.size_bytes, "cut files into chunks of this size");
  options.count("--stripe-width", flags.chunks.stripe_width, 1, 1024,
                "spread a file over this number of benefactors");
  options.choice("--naming", flags.chunks.naming, {"auto", "on", "off"},
                 "name chunks by content and store equal chunks once; auto: where that pays");
  options.text("--policy", flags.policy, "SETTINGS",
               "policies of folders that set nothing themselves: KEY=VALUE,KEY=VALUE...");
  options.choice(
      "--chunking", flags.chunks.cutting, {"fixed", "content", "none"},
      "end chunks after a fixed length, or where their content says; none: fixed, without names");
  options.redundancy("--copies", flags.redundancy.copies,
                     "copies of each chunk on different hosts, or parity ec(k,m); 0: as --policy "
                     "says, otherwise one copy");
  options.text("--topology", flags.redundancy.topology, "FILE",
               "says which hosts fail together; a line is NAME [node=N] [rack=R] [switch=S]");
  options.rate("--copy-rate", flags.redundancy.copy_rate,
               "limit of each benefactor's copying from others, bytes a second");
  options.rate("--scrub-rate", flags.redundancy.scrub_rate,
               "limit of each benefactor's checking, bytes a second; 0: check only on request");
  options.on_off(
      "--reader-copies", flags.redundancy.for_readers,
      "let the hosts that read one file at the same time pass its chunks on to each other");
  options.count("--gc-period", flags.gc_period, 0, 86400,
                "seconds between garbage collections; 0: only on request");
  options.flag("--rebuild", flags.takeover.rebuild,
               "rebuild a lost state directory from the metadata that benefactors keep");
  options.text("--standby", flags.takeover.standby, "ADDRESS",
               "follow the manager at this address, and take over when it is lost");
  options.count("--takeover-after", flags.takeover.after_s, 1, 3600,
                "seconds of silence after which a standby considers the manager lost");
  options.flag("--unconfined", flags.unconfined, kUnconfinedHelp);
  metrics::describe(options, flags.metrics);
  options.log_level(flags.log_level);
  return options.parse_or_exit(argc, argv);
}

}  // namespace stdchk::manager
