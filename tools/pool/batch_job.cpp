#include "tools/pool/batch_job.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/base/units.h"
#include "tools/base/process.h"
#include "tools/base/show.h"

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Outcome<BatchJob> slurm_job() {
  BatchJob job;
  job.id = environment("SLURM_JOB_ID");
  const std::string list = environment("SLURM_JOB_NODELIST");
  auto names = run_command({"scontrol", "show", "hostnames", list}, "", 30s);
  if (!names || names->status != 0) {
    return problem("scontrol does not tell the nodes of {}: {}", list,
                   names ? names->err : names.error().text);
  }
  std::istringstream words(names->out);
  for (std::string name; words >> name;) job.nodes.push_back(name);
  return job;
}

Outcome<BatchJob> pbs_job(const std::vector<std::string>& remote_shell) {
  BatchJob job;
  job.system = BatchJob::System::kPbs;
  job.id = environment("PBS_JOBID");
  const std::string path = environment("PBS_NODEFILE");
  std::ifstream file(path);
  if (!file) return problem("PBS_NODEFILE \"{}\" cannot be read", path);
  std::size_t place = 0;
  for (std::string name; file >> name; ++place) {
    if (std::ranges::find(job.nodes, name) != job.nodes.end()) continue;
    job.nodes.push_back(name);
    job.places.push_back(std::to_string(place));
  }
  if (!find_program("pbsdsh", "")) job.remote_shell = remote_shell;
  return job;
}

}  // namespace

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool is_job_id(const std::string& id) {
  return !id.empty() && id.size() < 200 && id[0] != '-' && id[0] != '.' &&
         id.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-[]") ==
             std::string::npos;
}

Outcome<BatchJob> current_job(const std::vector<std::string>& remote_shell) {
  Outcome<BatchJob> job = problem(
      "--job finds neither SLURM_JOB_ID nor PBS_JOBID in the environment: it belongs into a batch "
      "script; without a batch system use --hosts");
  if (!environment("SLURM_JOB_ID").empty()) {
    job = slurm_job();
  } else if (!environment("PBS_JOBID").empty()) {
    job = pbs_job(remote_shell);
  }
  if (!job) return job;
  if (!is_job_id(job->id)) return problem("the job's number \"{}\" is not valid", job->id);
  if (job->nodes.empty()) return problem("job {} has no nodes", job->id);
  return job;
}

std::string node_name() {
  std::string slurm = environment("SLURMD_NODENAME");
  if (!slurm.empty()) return slurm;
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

bool is_listed(const std::string& nodes, const std::string& name) {
  return std::ranges::any_of(split(nodes, ','), [&](const std::string& word) {
    return word == name || word.substr(0, word.find('.')) == name.substr(0, name.find('.'));
  });
}

std::string job_state_directory(const std::string& job_id) {
  return fmt::format("/tmp/stdchk-{}-jobs/{}", ::geteuid(), job_id);
}

std::string job_mount(const std::string& job_id) { return job_state_directory(job_id) + ".mount"; }

}  // namespace stdchk::tools
