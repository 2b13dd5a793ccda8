! A program for SCR in Fortran: restarts from the newest checkpoint, takes two more steps, checkpoints after each.
program scr_steps
  use mpi
  implicit none
  include 'scrf.h'
  integer :: ierr, rank, flag, valid, step, first, ios, unit
  integer, parameter :: n = 1000
  integer :: values(n)
  character(len=SCR_MAX_FILENAME) :: dataset, name, path
  call MPI_INIT(ierr)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
  call SCR_INIT(ierr)
  if (ierr /= SCR_SUCCESS) call MPI_ABORT(MPI_COMM_WORLD, 4, ierr)
  unit = 20
  first = 0
  call SCR_HAVE_RESTART(flag, dataset, ierr)
  if (flag == 1) then
    call SCR_START_RESTART(dataset, ierr)
    write (name, '(A,A,I0)') trim(dataset), '/fortran_', rank
    call SCR_ROUTE_FILE(name, path, ierr)
    valid = 0
    open (unit=unit, file=trim(path), form='unformatted', status='old', action='read', iostat=ios)
    if (ios == 0) then
      read (unit, iostat=ios) first, values
      close (unit)
      if (ios == 0 .and. all(values == first + rank)) valid = 1
    end if
    call SCR_COMPLETE_RESTART(valid, ierr)
    if (ierr /= SCR_SUCCESS) call MPI_ABORT(MPI_COMM_WORLD, 5, ierr)
  end if
  if (rank == 0) print '(A,I0)', 'restart step ', first
  do step = first + 1, first + 2
    write (dataset, '(A,I0)') 'fortran.', step
    call SCR_START_OUTPUT(dataset, SCR_FLAG_CHECKPOINT + SCR_FLAG_OUTPUT, ierr)
    write (name, '(A,A,I0)') trim(dataset), '/fortran_', rank
    call SCR_ROUTE_FILE(name, path, ierr)
    values = step + rank
    valid = 1
    open (unit=unit, file=trim(path), form='unformatted', status='replace', action='write', iostat=ios)
    if (ios == 0) write (unit, iostat=ios) step, values
    if (ios /= 0) valid = 0
    close (unit)
    call SCR_COMPLETE_OUTPUT(valid, ierr)
    if (ierr /= SCR_SUCCESS) call MPI_ABORT(MPI_COMM_WORLD, 6, ierr)
  end do
  call SCR_FINALIZE(ierr)
  call MPI_FINALIZE(ierr)
end program scr_steps
