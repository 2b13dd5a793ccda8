#pragma once

#include "manager/clients/clients.h"
#include "manager/clients/fences.h"
#include "manager/clients/notices.h"
#include "manager/clients/sessions.h"
#include "manager/locks/lock_service.h"
#include "manager/pool/pool.h"
#include "manager/pool/replaced_files.h"
#include "manager/service/admin_service.h"
#include "manager/service/admissions.h"
#include "manager/service/benefactor_service.h"
#include "manager/service/client_service.h"
#include "manager/service/connections.h"
#include "manager/service/name_service.h"
#include "manager/service/planners.h"
#include "manager/service/read_service.h"
#include "manager/service/router.h"
#include "manager/sessions/commit_service.h"
#include "manager/sessions/file_attributes.h"
#include "manager/sessions/placement.h"
#include "manager/sessions/resume_service.h"
#include "manager/sessions/session_service.h"
#include "manager/sessions/set_rewrites.h"
#include "manager/sessions/totals.h"

namespace stdchk::manager {

/// A Services makes the services, and gives each its neighbours: it is part of the manager's
/// composition root.
///
/// Threads: the reactor's.
struct Services {
  struct Parts {
    Clients& clients;
    SessionTable& sessions;
    Notices& notices;
    Fences& fences;
    Planners& planners;
    Admissions& admissions;
    Connections& connections;
  };
  Services(Pool& pool, Parts parts);
  Services(const Services&) = delete;
  Services& operator=(const Services&) = delete;

  FileAttributes attributes;
  Totals totals;
  ReplacedFiles replaced;
  SetRewrites rewrites;
  Placement placement;
  SessionService sessions;
  CommitService commits;
  ResumeService resumption;
  NameService names;
  ReadService reads;
  LockService locks;
  BenefactorService benefactors;
  ClientService members;
  AdminService administration;
  Router router;
};

}  // namespace stdchk::manager
