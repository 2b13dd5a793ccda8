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
#include "manager/sessions/lease_service.h"
#include "manager/sessions/placement.h"
#include "manager/sessions/resume_service.h"
#include "manager/sessions/session_service.h"
#include "manager/sessions/set_rewrites.h"
#include "manager/sessions/totals.h"

namespace stdchk::manager {

/// The parts of the manager that services use, beside the Pool.
struct ServiceNeighbours {
  Clients& clients;
  SessionTable& sessions;
  Notices& notices;
  Fences& fences;
  Planners& planners;
  Admissions& admissions;
  Connections& connections;
};

/// A WritingServices has the services of sessions: opening, placement, commit and resumption.
///
/// Threads: the reactor's.
struct WritingServices {
  WritingServices(Pool& pool, const ServiceNeighbours& to);

  FileAttributes attributes;
  Totals totals;
  ReplacedFiles replaced;
  SetRewrites rewrites;
  Placement placement;
  SessionService sessions;
  LeaseService leases;
  CommitService commits;
  ResumeService resumption;
};

/// A FileServices has the services of names, reads and locks.
///
/// Threads: the reactor's.
struct FileServices {
  FileServices(Pool& pool, const ServiceNeighbours& to, WritingServices& writing);

  NameService names;
  ReadService reads;
  LockService locks;
};

/// A MemberServices has the services for the members of the pool: benefactors and clients.
///
/// Threads: the reactor's.
struct MemberServices {
  MemberServices(Pool& pool, const ServiceNeighbours& to, WritingServices& writing,
                 FileServices& files);

  BenefactorService benefactors;
  ClientService clients;
};

/// A Services makes the services, and gives each its neighbours: it is part of the manager's
/// composition root.
///
/// Threads: the reactor's.
struct Services {
  Services(Pool& pool, const ServiceNeighbours& to);
  Services(const Services&) = delete;
  Services& operator=(const Services&) = delete;

  WritingServices writing;
  FileServices files;
  MemberServices members;
  AdminService administration;
  Router router;
};

}  // namespace stdchk::manager
