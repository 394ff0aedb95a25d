package lab

// clockCode is machine code that depends on no address and takes the place of
// clock_gettime(clock in edi, result in rsi). It asks the kernel, and adds the
// offset in nanoseconds to the wall clock, which is clock 0. The two copies of
// the offset stand behind it; a copy that is being written differs.
var clockCode = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, //             mov  eax, 228            ; clock_gettime
	0x0f, 0x05, //                               syscall
	0x85, 0xc0, //                               test eax, eax
	0x75, 0x36, //                               jnz  out                 ; an error
	0x85, 0xff, //                               test edi, edi
	0x75, 0x32, //                               jnz  out                 ; another clock
	0x48, 0x8b, 0x05, 0x32, 0x00, 0x00, 0x00, // again: mov rax, [rip+first]
	0x48, 0x3b, 0x05, 0x33, 0x00, 0x00, 0x00, // cmp  rax, [rip+second]
	0x75, 0xf0, //                               jne  again
	0xb9, 0x00, 0xca, 0x9a, 0x3b, //             mov  ecx, 1000000000
	0x48, 0x03, 0x46, 0x08, //                   add  rax, [rsi+8]        ; nanoseconds
	0x48, 0x99, //                               cqo
	0x48, 0xf7, 0xf9, //                         idiv rcx                 ; whole seconds, the rest in rdx
	0x48, 0x85, 0xd2, //                         test rdx, rdx
	0x79, 0x06, //                               jns  whole
	0x48, 0x01, 0xca, //                         add  rdx, rcx            ; a rest is not negative
	0x48, 0xff, 0xc8, //                         dec  rax
	0x48, 0x01, 0x06, //                         whole: add [rsi], rax    ; seconds
	0x48, 0x89, 0x56, 0x08, //                   mov  [rsi+8], rdx
	0x31, 0xc0, //                               xor  eax, eax
	0xc3,                               //                                       out: ret
	0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00, //       nop
	0, 0, 0, 0, 0, 0, 0, 0, //                   first
	0, 0, 0, 0, 0, 0, 0, 0, //                   second
}

// clockOffsetAt is where in the code the copies of the offset stand.
const clockOffsetAt = 0x48
